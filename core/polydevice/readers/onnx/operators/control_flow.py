"""If, Loop and Scan.

Values that a body takes from the graphs around it become inputs of the operation. A body is read
with what is known of its inputs; where an iteration changes a shape it is read again without it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polydevice.dtype import ElementType
from polydevice.emitter import Emitter
from polydevice.errors import ModelFormatError, NetworkError
from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.ops.arithmetic import Maximum
from polydevice.ops.concat import Concat
from polydevice.ops.containers import OptionalConstruct, OptionalGetElement
from polydevice.ops.control_flow import (
    BackEdge,
    BodyInput,
    BodyOutput,
    If,
    Loop,
    Slicing,
    TensorIterator,
)
from polydevice.ops.io import Parameter
from polydevice.ops.reshape import Squeeze, Unsqueeze
from polydevice.ops.slice import Slice
from polydevice.readers.onnx.catalog import translates
from polydevice.readers.onnx.graph import ReadBody
from polydevice.readers.onnx.node import OnnxNode
from polydevice.shape import Shape, normalize_axis, union
from polydevice.tensor import TensorDesc


@translates("If")
def if_(n: OnnxNode) -> list[Port]:
    """One of two bodies; when the condition is known, that body alone."""
    condition = n.input(0)
    known = condition.desc.constant
    chosen = "then_branch" if known is not None and known.all() else "else_branch"
    if known is not None and not depends_on_parameters(condition):
        return n.inline(chosen)
    try:
        bodies = n.body("then_branch"), n.body("else_branch")
    except NetworkError:
        # For these shapes the other body is not even consistent.
        if known is None:
            raise
        return n.inline(chosen)
    inputs: list[Port] = [condition]
    ties = [_tie_captures(body, inputs) for body in bodies]
    outputs = tuple(BodyOutput(i, i) for i in range(len(n.outputs)))
    for body in bodies:
        own = len(body.network.parameters) - len(body.captures)
        if own:
            raise n.unsupported(f"a branch has {own} inputs of its own; If gives it none")
        if len(body.network.results) != len(n.outputs):
            raise n.unsupported(
                f"a branch has {len(body.network.results)} outputs, the node {len(n.outputs)}"
            )
    op = If(bodies[0].network, bodies[1].network, ties[0], ties[1], outputs, outputs)
    return n.emit_all(op, *inputs)


def depends_on_parameters(port: Port) -> bool:
    """Whether a value comes from inputs of the network, be it from their shapes alone."""
    seen, stack = set(), [port.node]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node.op, Parameter):
            return True
        stack.extend(source.node for source in node.inputs)
    return False


def _tie_captures(body: ReadBody, inputs: list[Port]) -> tuple[BodyInput, ...]:
    """Append captured ports to the operation's inputs and tie the body's parameters to them."""
    first = len(body.network.parameters) - len(body.captures)
    ties = []
    for position, port in enumerate(body.captures):
        if port not in inputs[1:]:
            inputs.append(port)
        index = inputs.index(port, 1)
        ties.append(BodyInput(index, first + position))
    return tuple(ties)


@translates("Loop")
def loop(n: OnnxNode) -> list[Port]:
    """A body that carries values, while a condition holds and up to a number of times."""
    trips = _trips(n)
    first = n.optional(1) or n.value(np.array(True))
    carried = [n.input(i) for i in range(2, len(n.inputs))]
    count = len(carried)
    own = [TensorDesc(ElementType.i64, Shape()), TensorDesc(ElementType.boolean, Shape())]
    body = _settled_body(n, own, carried, [], shift=1)
    network = body.network
    wrapped = {i for i, port in enumerate(carried) if _wrap_optional(network, 1 + i, port.desc)}
    scans = range(1 + count, len(network.results))
    for result in scans:
        _unsqueeze_result(network, result, 0)
    inputs = [trips, first, *carried]
    ties = [BodyInput(1, 1), *(BodyInput(2 + i, 2 + i) for i in range(count))]
    ties += _tie_loop_captures(body, inputs)
    outputs = [BodyOutput(i, 1 + i) for i in range(count)]
    outputs += [BodyOutput(r - 1, r, Slicing(0)) for r in scans]
    edges = [BackEdge(0, 1), *(BackEdge(1 + i, 2 + i) for i in range(count))]
    op = Loop(
        network,
        tuple(ties),
        tuple(outputs),
        tuple(edges),
        current_iteration=0,
        execution_condition=0,
    )
    made = n.emit_all(op, *inputs)
    return [n.emit(OptionalGetElement(), p) if i in wrapped else p for i, p in enumerate(made)]


def _trips(n: OnnxNode) -> Port:
    """The trip count as OpenVINO counts: there any negative number is no bound, in ONNX none."""
    given = n.optional(0)
    if given is None:
        return n.value(-1)
    known = given.desc.static_ints
    if known is None:
        return n.emit(Maximum(), given, n.value(0))
    return n.value(0) if known[0] < 0 else given


def _wrap_optional(network: Network, index: int, carried: TensorDesc) -> bool:
    """Make an optional of a result that is carried on as one; ONNX does so tacitly."""
    result = network.results[index]
    kind = result.output.desc.kind
    if not carried.kind.startswith("optional") or kind.startswith("optional"):
        return False
    build = Emitter(f"{result.name}/optional")
    result.inputs = [build.emit(OptionalConstruct(), result.inputs[0])]
    result.infer()
    return True


def _tie_loop_captures(body: ReadBody, inputs: list[Port]) -> list[BodyInput]:
    first = len(body.network.parameters) - len(body.captures)
    ties = []
    for position, port in enumerate(body.captures):
        ties.append(BodyInput(len(inputs), first + position))
        inputs.append(port)
    return ties


def _settled_body(
    n: OnnxNode,
    own: Sequence[TensorDesc],
    carried: Sequence[Port],
    scanned: Sequence[TensorDesc],
    shift: int,
) -> ReadBody:
    """Read a body for descriptions of carried values that hold in every iteration.

    Args:
        n: the node.
        own: descriptions of the inputs before the carried ones.
        carried: initial values.
        scanned: descriptions of the inputs behind the carried ones.
        shift: result of the first carried value.
    """
    descs = [port.desc.without_value() for port in carried]
    for _ in range(4):
        body = n.body("body", [*own, *descs, *scanned])
        if len(body.network.results) < shift + len(descs):
            raise n.unsupported(
                f"the body has {len(body.network.results)} outputs for {len(descs)} carried values"
            )
        made = [r.output.desc for r in body.network.results[shift : shift + len(descs)]]
        wider = [_covering(before, after) for before, after in zip(descs, made)]
        if wider == descs:
            break
        descs = wider
    return body


def _covering(before: TensorDesc, after: TensorDesc) -> TensorDesc:
    """Return what describes a value before and after an iteration; changing sizes are freed."""
    kind = before.element_type
    if kind is ElementType.dynamic:
        kind = after.element_type
    shape = union(before.shape, after.shape)
    if shape is not None and shape != before.shape:
        shape = Shape(size if isinstance(size, int) else None for size in shape)
    return TensorDesc(kind, shape, None, before.kind)


def _unsqueeze_result(network: Network, index: int, axis: int) -> None:
    """Give a result an axis of size 1, along which iterations are joined."""
    result = network.results[index]
    build = Emitter(f"{result.name}/unsqueeze")
    axes = build.value([axis], name=f"{result.name}/axes")
    result.inputs = [build.emit(Unsqueeze(), result.inputs[0], axes)]
    result.infer()


def _squeeze_parameter(network: Network, index: int, axis: int) -> None:
    """Give a parameter an axis of size 1, which a slice has and the body does not expect."""
    old = network.parameters[index]
    shape = old.output.shape
    sizes = None if shape is None else Shape([*shape[:axis], 1, *shape[axis:]])
    new = Node(f"{old.name}/slice", Parameter(old.output.element_type, sizes))
    build = Emitter(f"{old.name}/squeeze")
    axes = build.value([axis], name=f"{old.name}/axes")
    network.replace({old.output: build.emit(Squeeze(), new.output, axes)})
    network.parameters[index] = new


@translates("Scan", since=9)
def scan(n: OnnxNode) -> list[Port]:
    """A body that runs for every slice of some inputs."""
    return _scan(
        n,
        n.required_inputs(),
        n.attribute("scan_input_axes"),
        n.attribute("scan_input_directions"),
        n.attribute("scan_output_axes"),
        n.attribute("scan_output_directions"),
    )


def _scan(
    n: OnnxNode,
    inputs: list[Port],
    input_axes: list[int] | None,
    input_directions: list[int] | None,
    output_axes: list[int] | None,
    output_directions: list[int] | None,
) -> list[Port]:
    number = n.required("num_scan_inputs")
    if not 0 < number <= len(inputs):
        raise n.unsupported(f"num_scan_inputs {number} does not fit {len(inputs)} inputs")
    count = len(inputs) - number
    carried, scanned = inputs[:count], inputs[count:]
    given = _for_each("scan_input_axes", input_axes, number, "input")
    axes = [normalize_axis(axis, n.rank(port)) for axis, port in zip(given, scanned)]
    body = _settled_body(
        n, [], carried, [_without_axis(p, a) for p, a in zip(scanned, axes)], shift=0
    )
    network = body.network
    directions = _for_each("the directions of inputs", input_directions, number, "input")
    ties = [BodyInput(i, i) for i in range(count)]
    for position, axis in enumerate(axes):
        _squeeze_parameter(network, count + position, axis)
        cut = _slicing(axis, directions[position])
        ties.append(BodyInput(count + position, count + position, cut))
    outputs = [BodyOutput(i, i) for i in range(count)]
    made = len(network.results) - count
    if made < 0:
        raise ModelFormatError(
            f"the body has {len(network.results)} outputs for {count} values that are carried on"
        )
    places = _for_each("scan_output_axes", output_axes, made, "output")
    turns = _for_each("scan_output_directions", output_directions, made, "output")
    for position in range(made):
        result = network.results[count + position]
        rank = result.output.desc.rank
        axis = places[position]
        if axis < 0:
            if rank is None:
                raise n.unsupported("a negative scan output axis needs a known rank")
            axis = normalize_axis(axis, rank + 1)
        _unsqueeze_result(network, count + position, axis)
        cut = _slicing(axis, turns[position])
        outputs.append(BodyOutput(count + position, count + position, cut))
    all_inputs = list(inputs)
    ties += _tie_loop_captures(body, all_inputs)
    edges = tuple(BackEdge(i, i) for i in range(count))
    op = TensorIterator(network, tuple(ties), tuple(outputs), edges)
    return n.emit_all(op, *all_inputs)


def _for_each(name: str, given: list[int] | None, count: int, what: str) -> list[int]:
    """Return one number for each input or output that is scanned; 0 where none are given."""
    if given and len(given) != count:
        raise ModelFormatError(f"{name}: {len(given)} numbers for {count} scanned {what}s")
    return given or [0] * count


def _slicing(axis: int, direction: int) -> Slicing:
    return Slicing(axis, -1, 0, -1) if direction else Slicing(axis)


def _without_axis(port: Port, axis: int) -> TensorDesc:
    assert port.shape is not None
    return port.desc.with_shape([*port.shape[:axis], *port.shape[axis + 1 :]])


@translates("Scan", since=8)
def scan_of_batches(n: OnnxNode) -> list[Port]:
    """The first version: one scan per item of a batch, all of full length."""
    if n.optional(0) is not None:
        raise n.unsupported("sequence_lens of opset 8 is not supported")
    inputs = [n.input(i) for i in range(1, len(n.inputs))]
    batch = inputs[0].shape[0] if inputs[0].shape else None
    if not isinstance(batch, int):
        raise n.unsupported("opset 8 needs a known batch size")
    items = []
    for index in range(batch):
        parts = [
            n.emit(Squeeze(), n.emit(Slice(), port, [index], [index + 1], [1], [0]), [0])
            for port in inputs
        ]
        made = _scan(n, parts, None, n.attribute("directions"), None, None)
        items.append([n.emit(Unsqueeze(), port, [0]) for port in made])
    return [n.emit(Concat(0), *ports) for ports in zip(*items)]
