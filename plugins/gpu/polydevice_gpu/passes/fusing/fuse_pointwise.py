"""fuse_pointwise: pointwise operations move into the node that computes their input.

One rule serves activations, scale and shift, PReLU, FakeQuantize, residual sums, bias and chains of
pointwise operations: a `Fused` node is taken over by a producer when the producer's kernels fuse,
nobody else reads the value between them, and that value has the shape of the result. Reshapes,
transposes and concatenations between the two are no obstacle: see `fuse_beyond_views`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from polydevice.dtype import ElementType
from polydevice.shape import are_same
from polydevice_gpu.graph import GpuGraph, GpuNode, Value
from polydevice_gpu.kernels.kernel import kernels_of
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.ops import Fragment, Fused, Step
from polydevice_gpu.passes.fusing.fuse_beyond_views import Way, find_way

ARGUMENT_LIMIT = 600
"""Most bytes of arguments for inputs, by the estimate below: OpenCL guarantees 1024 in all."""

TENSOR_BYTES, NUMBER_BYTES = 50, 8
"""A pointer, an offset and some pitches and sizes; a constant of one element."""

STEP_LIMIT = 128
"""Most operations that are fused into one node.

Merging takes as long as what is merged, and so does a compiler's work on one expression: 2,000
layers in a row took 24 s in a single kernel. Trained networks have some 40 in a row.
"""


def fuse_neighbours(graph: GpuGraph, target: Target) -> None:
    """Fuse what reads a result as it is."""
    del target  # all devices gain
    _fuse(graph, beyond_views=False)


def fuse_pointwise(graph: GpuGraph, target: Target) -> None:
    """Fuse also what reads a result through views and concatenations."""
    del target  # all devices gain
    _fuse(graph, beyond_views=True)


def _fuse(graph: GpuGraph, *, beyond_views: bool) -> None:
    """Fuse until nothing more can be fused, in time linear in the number of nodes."""
    users = graph.users()
    order = {node: position for position, node in enumerate(graph.nodes)}
    depths = _depths(graph)
    for node in graph.nodes:
        current: GpuNode | None = node
        while current is not None and isinstance(current.op, Fused):
            # What it was merged into may have other producers that take it over in turn.
            host = _host(current, users, order, depths)
            if host is None:
                host = _fuse_beyond(current, users, order) if beyond_views else None
            else:
                _forget(users, host)
                _forget(users, current)
                _merge(host, current)
                _remember(users, host)
                del order[current]
            current = host
    graph.nodes = list(order)
    graph.sort()


def _forget(users: dict[Value, list[GpuNode]], node: GpuNode) -> None:
    """Take out what the node reads."""
    for value in node.inputs:
        users[value].remove(node)


def _remember(users: dict[Value, list[GpuNode]], node: GpuNode) -> None:
    """Enter what the node reads."""
    for value in node.inputs:
        users.setdefault(value, []).append(node)


def _depths(graph: GpuGraph) -> dict[GpuNode, int]:
    """Return how many nodes stand one behind the other up to each node, at most."""
    depths: dict[GpuNode, int] = {}
    for node in graph.nodes:
        before = (depths.get(v.producer, 0) for v in node.inputs if v.producer is not None)
        depths[node] = 1 + max(before, default=0)
    return depths


def _host(
    node: GpuNode,
    users: dict[Value, list[GpuNode]],
    order: dict[GpuNode, int],
    depths: dict[GpuNode, int],
) -> GpuNode | None:
    """Return the producer that takes the node over: the one that has most to wait for.

    So the others can be computed beside what it waits for, in one launch without a barrier between
    them, as the projection that goes around a block.
    """
    candidates = [
        value.producer
        for value in node.inputs
        if value.producer is not None
        and value.producer in order
        and are_same(value.shape, node.output.shape)
        and not value.is_output
        and all(user is node for user in users.get(value, []))
        and _takes_over(value.producer, value, node, node.inputs)
    ]
    # Work that a heavy producer's epilogue hides is free; a plain copy or sum is a launch saved.
    # One that can leave bytes does: see `read_bytes`.
    return max(
        candidates,
        key=lambda n: (
            not isinstance(n.op, Fused),
            not _makes_bytes(n),
            0 if isinstance(n.op, Fused) else depths.get(n, 0),
            order[n],
        ),
        default=None,
    )


def _makes_bytes(node: GpuNode) -> bool:
    """Whether floats are made of bytes in an epilogue that makes those, too."""
    steps = node.epilogue.steps if node.epilogue is not None else ()
    return any(step.element_type in (ElementType.u8, ElementType.i8) for step in steps)


def _takes_over(host: GpuNode, value: Value, node: GpuNode, operands: Sequence[Value]) -> bool:
    """Whether a host may compute a node's operations on its result with these operands."""
    if _steps(host) + _steps(node) > STEP_LIMIT:
        return False
    size = bytes_of_arguments({*host.inputs, *operands} - {value})
    return value is host.output and size <= ARGUMENT_LIMIT and _fuses(host)


def has_room(host: GpuNode, node: GpuNode) -> bool:
    """Whether a node's operations and arguments fit beside a host's."""
    size = bytes_of_arguments({*host.inputs, *node.inputs})
    return _steps(host) + _steps(node) <= STEP_LIMIT and size <= ARGUMENT_LIMIT


def bytes_of_arguments(inputs: Iterable[Value]) -> int:
    """Return how many bytes the arguments for these values take, estimated."""
    return sum(NUMBER_BYTES if _is_number(value) else TENSOR_BYTES for value in inputs)


def _steps(node: GpuNode) -> int:
    fragment = node.op.fragment if isinstance(node.op, Fused) else node.epilogue
    return 0 if fragment is None else len(fragment.steps)


def _is_number(value: Value) -> bool:
    return value.constant is not None and value.elements == 1


def _fuse_beyond(
    node: GpuNode, users: dict[Value, list[GpuNode]], order: dict[GpuNode, int]
) -> GpuNode | None:
    """Let those take a node over that compute what it sees through views; return one of them."""

    def hosts(value: Value, operands: Sequence[Value]) -> bool:
        producer = value.producer
        if producer is None or producer not in order:
            return False
        return _takes_over(producer, value, node, operands)

    for value in dict.fromkeys(node.inputs):
        if not are_same(value.shape, node.output.shape) or value.producer not in order:
            continue
        way = find_way(node, value, users, hosts)
        if way is not None:
            _merge_beyond(way, node, value, users, order)
            return way.hosts[0][0] if len(way.hosts) == 1 and not way.parts else None
    return None


def _merge_beyond(
    way: Way,
    node: GpuNode,
    value: Value,
    users: dict[Value, list[GpuNode]],
    order: dict[GpuNode, int],
) -> None:
    assert value.producer is not None
    _forget(users, node)
    for made in way.made:
        order[made] = len(order)
        _remember(users, made)
    for number, (host, operands) in enumerate(way.hosts):
        _forget(users, host)
        result, rest = host.output, iter(operands)
        inputs = [result if each is value else next(rest) for each in node.inputs]
        origins = [] if number else node.origins
        _merge(host, GpuNode(node.name, node.op, inputs, [result.like(result.name)], origins))
        # The value keeps its identity: views and concatenations read it.
        host.outputs, result.producer = [result], host
        _remember(users, host)
    for number, (part, concat, operands) in enumerate(way.parts):
        rest = iter(operands)
        inputs = [part if each is value else next(rest) for each in node.inputs]
        result = Value(f"{node.name}/{part.name}", node.output.element_type, part.shape)
        result.storage = node.output.storage
        origins = [] if number or way.hosts else node.origins
        made = GpuNode(result.name, node.op, inputs, [result], origins)
        made.result_type = node.result_type
        order[made] = len(order)
        _forget(users, concat)
        concat.inputs = [result if each is part else each for each in concat.inputs]
        _remember(users, concat)
        _remember(users, made)
    for each in way.between:
        each.element_type, each.storage = node.output.element_type, node.output.storage
    top = value.producer
    top.outputs = [node.output if each is value else each for each in top.outputs]
    node.output.producer = top
    users.pop(value, None)
    del order[node]


def _fuses(node: GpuNode) -> bool:
    if node.on_host:
        return False
    if node.output.border is not None:
        return False
    kernels = kernels_of(type(node.op))
    return bool(kernels) and all(kernel.fuses(node) for kernel in kernels)


def without_repetition(fragment: Fragment, inputs: list[Value], first: int) -> Fragment:
    """Read each value once: drop inputs, from number `first` on, that repeat an earlier one."""
    numbers: dict[int, int] = {}
    kept: list[int] = []
    seen: dict[Value, int] = {}
    for number in range(len(fragment.inputs)):
        value = inputs[number - first] if number >= first else None
        if value is not None and value in seen:
            numbers[number] = seen[value]
            continue
        numbers[number] = len(kept)
        if value is not None:
            seen[value] = len(kept)
        kept.append(number)
    for index in range(len(fragment.steps)):
        numbers[len(fragment.inputs) + index] = len(kept) + index
    steps = tuple(
        Step(step.op, tuple(numbers[a] for a in step.arguments), step.element_type)
        for step in fragment.steps
    )
    inputs[:] = list(dict.fromkeys(inputs))
    return Fragment(tuple(fragment.inputs[n] for n in kept), steps)


def _merge(host: GpuNode, node: GpuNode) -> None:
    op = node.operation(Fused)
    positions = [i for i, value in enumerate(node.inputs) if value is host.output]
    others = [value for i, value in enumerate(node.inputs) if i not in positions]
    if isinstance(host.op, Fused):
        fragment = host.op.fragment.then(op.fragment, positions)
        host.inputs += others
        host.op = Fused(without_repetition(fragment, host.inputs, 0))
    else:
        before = host.epilogue or Fragment((host.output.storage,))
        own, extras = host.own_inputs, [*host.extra_inputs, *others]
        fragment = before.then(op.fragment, positions)
        host.epilogue = without_repetition(fragment, extras, 1)
        host.inputs = [*own, *extras]
    host.outputs = [node.output]
    node.output.producer = host
    host.origins += node.origins
