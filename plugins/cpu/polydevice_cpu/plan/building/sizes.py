"""Sizes: a copy of a network into which shapes of inputs are filled, one set after the other."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from polydevice.bounds import computing_ahead
from polydevice.dtype import Array, ElementType
from polydevice.errors import ShapeError
from polydevice.memory_budget import host_memory_bytes
from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.ops.broadcast import AS_NUMPY, Broadcast
from polydevice.ops.control_flow import If
from polydevice.ops.io import Constant, Parameter
from polydevice.ops.op import Op
from polydevice.ops.pointwise import AutoBroadcast, BinaryPointwise
from polydevice.ops.random import Multinomial, RandomUniform
from polydevice.passes.check_sizes import check_sizes
from polydevice.rewrites.control_flow.inline_branches import inline_branches
from polydevice.runtime.plan_cache import Shapes
from polydevice.shape import Shape, broadcast
from polydevice.symbolic_size import UntraceableError
from polydevice.tensor import TensorDesc
from polydevice_cpu.implement import evaluate
from polydevice_cpu.onednn.engine import address_of

_SMALL_BYTES = 1024
"""Up to which elements are compared; of more integers, whether they are one array."""


@dataclass(frozen=True)
class Sized:
    """A network whose inputs have known shapes; `nodes` are all of it, producers first.

    Attributes:
        kinds: node → number that it shares with nodes of the same operation.
        stable: addresses of arrays that are the same for all shapes: the network's constants.
        followers: those of `nodes` whose outputs may change with the shapes.
        fixed: numbers of what the others' outputs are.
        spared: where a node reads a row instead of as many copies of it as there are rows.
        needed: what is computed when the network runs; forgotten where other values are known
            ahead of that.
    """

    network: Network
    nodes: Sequence[Node]
    kinds: Mapping[Node, int]
    stable: set[int]
    followers: Sequence[Node]
    fixed: _Numbers
    spared: Sequence[Spared] = ()
    needed: list[Needed] = field(default_factory=list)


@dataclass(frozen=True)
class Spared:
    """An input of a pointwise operation, whose broadcasting rule repeats a row by itself.

    Attributes:
        node: the operation.
        place: of the input.
        copies: the row repeated, which it would read.
    """

    node: Node
    place: int
    copies: Port

    def holds(self) -> bool:
        """Whether the result has the same shape without the copies."""
        ports = list(self.node.inputs)
        ports[self.place] = self.copies
        try:
            return _stretched(ports) == _stretched(self.node.inputs)
        except ShapeError:  # which who infers the node itself tells better
            return False


@dataclass(frozen=True)
class Needed:
    """What something computed at run time depends on.

    Attributes:
        nodes: producers before consumers.
        uses: how many inputs of nodes and results of the network read a port.
    """

    nodes: list[Node]
    uses: Mapping[Port, int]


class Sizes:
    """Fills shapes into one network; for one thread at a time.

    Only what depends on sizes that have changed is inferred again, and once for all layers that
    are alike, as the blocks of a network are.
    """

    def __init__(self, source: Callable[[], Network]) -> None:
        """Begin with what returns the network, which stays as it is."""
        self._source = source
        self._latest: Sized | None = None

    def fill(self, shapes: Shapes, prepared: Callable[[Network], Network]) -> Sized:
        """Return the network for inputs of these shapes; the one returned before is no more.

        Args:
            shapes: of the inputs.
            prepared: returns the body of an If with the passes applied.

        Raises:
            NetworkError: when an operation does not accept the shapes.
            ModelLimitError: a value is larger than any memory here.
        """
        latest, self._latest = self._latest, None  # what fails leaves nothing behind
        if latest is None:
            sized, can_stay = self._first(shapes, prepared)
        else:
            sized, can_stay = latest, self._again(latest, shapes)
            if not can_stay:
                sized, can_stay = self._first(shapes, prepared)
        self._latest = sized if can_stay else None
        return sized

    def formulas(self, shapes: Shapes, prepared: Callable[[Network], Network]) -> Sized:
        """Return a network of its own for inputs of which some sizes are symbolic.

        Raises:
            UntraceableError: there are variables in it.
        """
        sized, _ = self._first(shapes, prepared)
        for node in sized.nodes:
            draws = isinstance(node.op, (RandomUniform, Multinomial))
            if (node.op.is_stateful and not draws) or node.op.has_side_effect:
                raise UntraceableError(f"{node.title} keeps something")
        return sized

    def clear(self) -> None:
        """Let go of what was filled in last."""
        self._latest = None

    def take_apart(self) -> None:
        """Let go of what was filled in last, of which nobody uses a node."""
        if self._latest is not None:
            self._latest.network.take_apart()
        self._latest = None

    def _first(self, shapes: Shapes, prepared: Callable[[Network], Network]) -> tuple[Sized, bool]:
        """The network, and whether other sizes can be filled into it."""
        network = self._source().clone()
        network.evaluate = evaluate
        _set(network, shapes)
        network.infer()
        inlined = inline_branches(network, prepared)
        nodes = network.nodes()
        check_sizes(nodes, host_memory_bytes(), "CPU")
        spared = _spare_copies(nodes)
        stable, followers, fixed = set(), [], _Numbers()
        for node in nodes:
            if isinstance(node.op, Constant):
                stable.add(address_of(node.op.value))
                fixed.of(node.output.desc)
            else:
                followers.append(node)
        return Sized(network, nodes, _kinds(nodes), stable, followers, fixed, spared), not inlined

    def _again(self, sized: Sized, shapes: Shapes) -> bool:
        """Infer what other shapes change; False where more than that is to be changed now."""
        changed: set[Port] = set()
        touched: list[Node] = []
        parameters = set(_set(sized.network, shapes))
        alike = _Alike(sized)
        with computing_ahead():
            for node in sized.followers:
                if changed.isdisjoint(node.inputs) and node not in parameters:
                    continue
                before = [port.desc for port in node.outputs]
                if alike.infer(node):
                    touched.append(node)
                for port, known in zip(node.outputs, before, strict=True):
                    if alike.is_same(port.desc, known):
                        port.desc = known
                    else:
                        changed.add(port)
                        if (known.constant is None) is not (port.desc.constant is None):
                            sized.needed.clear()
        check_sizes(touched, host_memory_bytes(), "CPU")
        return _can_stay(sized) and not any(
            isinstance(node.op, If) and node.inputs[0].desc.constant is not None
            for node in sized.followers
        )


class _Alike:
    """What was inferred while one set of shapes is filled in: layers that are alike are once."""

    def __init__(self, sized: Sized) -> None:
        """Begin without any."""
        self._kinds = sized.kinds
        self._numbers = sized.fixed.copy()
        self._results: dict[tuple[int, ...], list[TensorDesc]] = {}
        # Both are kept, so that no other one gets their identities.
        self._compared: dict[tuple[int, int], tuple[TensorDesc, TensorDesc, bool]] = {}

    def infer(self, node: Node) -> bool:
        """Find type and shape of every output; False where another node has the same.

        Raises:
            NetworkError: as `Node.infer` does.
        """
        kind = self._kinds.get(node)
        if kind is None or _computes_with_weights(node):
            node.infer(evaluate)
            return True
        number = self._numbers.of
        key = (kind, *[number(port.desc) for port in node.inputs])
        found = self._results.get(key)
        if found is None:
            node.infer(evaluate)
            self._results[key] = [port.desc for port in node.outputs]
            return True
        for port, desc in zip(node.outputs, found, strict=True):
            port.desc = desc
        return False

    def is_same(self, one: TensorDesc, other: TensorDesc) -> bool:
        """Whether two descriptions say the same, of elements too."""
        key = id(one), id(other)
        known = self._compared.get(key)
        if known is None:
            known = self._compared[key] = one, other, _same(one, other)
        return known[2]


class _Numbers:
    """Numbers of descriptions: those have one number that say the same, of elements too."""

    def __init__(self) -> None:
        self._descs: dict[int, tuple[TensorDesc, int]] = {}  # by identity, which is kept
        self._numbers: dict[Hashable, int] = {}

    def copy(self) -> _Numbers:
        """Return one that knows as much, and may learn more."""
        made = _Numbers()
        made._descs, made._numbers = dict(self._descs), dict(self._numbers)
        return made

    def of(self, desc: TensorDesc) -> int:
        """Return the number of a description."""
        known = self._descs.get(id(desc))
        if known is not None:
            return known[1]
        value = desc.value
        content: Hashable = None
        if value is not None:
            if _is_large(value):
                content = "weights" if value.dtype.kind == "f" else id(value)
            else:
                content = value.tobytes() if value.dtype != object else tuple(value.flat)
        same = desc.element_type, desc.shape, desc.kind, content
        number = self._numbers.setdefault(same, len(self._numbers))
        self._descs[id(desc)] = desc, number
        return number


def _computes_with_weights(node: Node) -> bool:
    """Whether a result may be computed ahead from a value that is told by its shape alone."""
    large = False
    for port in node.inputs:
        value = port.desc.value
        if value is None:
            return False
        large = large or _is_large(value)
    return large


def _is_large(value: Array) -> bool:
    return value.nbytes > _SMALL_BYTES


def _can_stay(sized: Sized) -> bool:
    """Whether what reads a row instead of its copies may read it for other sizes."""
    if not sized.spared:
        return True
    late = _late(sized.nodes)
    return all(each.node not in late and each.holds() for each in sized.spared)


def _late(nodes: Sequence[Node]) -> set[Node]:
    """The nodes that a plan leaves to its tail, as `PlanBuilder` does."""
    late: set[Node] = set()
    for node in nodes:
        if node.outputs and all(port.desc.constant is not None for port in node.outputs):
            continue
        read = [port for port in node.inputs if port.node in late]
        if not all(map(is_plain, node.outputs)) or not is_given_texts(node, read):
            late.add(node)
    return late


def is_given_texts(node: Node, late: Sequence[Port]) -> bool:
    """Whether what a node reads late, if anything, are texts that a request is given.

    They are there before the plan runs, so that a node that makes numbers of them is a step of it.
    """
    return all(
        isinstance(port.node.op, Parameter) and port.desc.kind == "tensor" and port.desc.is_static
        for port in late
    ) and not (late and node.op.has_bodies)


def is_plain(port: Port) -> bool:
    """Whether the port holds numbers in an array of known sizes."""
    desc = port.desc
    return desc.is_static and desc.element_type is not ElementType.string


def _spare_copies(nodes: Sequence[Node]) -> list[Spared]:
    """Let pointwise operations read a row whose copies they read; return which do."""
    found, late = [], _late(nodes)
    for node in nodes:
        op = node.op
        if not isinstance(op, BinaryPointwise) or op.auto_broadcast is not AutoBroadcast.NUMPY:
            continue
        if node in late:  # a tail reads what it is given
            continue
        for place, port in enumerate(node.inputs):
            if not isinstance(port.node.op, Broadcast) or port.node.op.mode not in AS_NUMPY:
                continue
            row, spared = port.node.inputs[0], Spared(node, place, port)
            if row.shape is None or not row.desc.is_static or len(row.shape) > 1:
                continue
            node.inputs[place] = row
            if spared.holds():
                found.append(spared)
            else:
                node.inputs[place] = port
    return found


def _stretched(ports: Sequence[Port]) -> Shape | None:
    """The shape of all together."""
    first, second = (port.shape for port in ports)
    return None if first is None or second is None else broadcast(first, second)


def _kinds(nodes: Sequence[Node]) -> dict[Node, int]:
    """Return node → number of its operation, of those that depend on their inputs alone."""
    numbers: dict[tuple[Op, str], int] = {}
    found = {}
    for node in nodes:
        op = node.op
        if node.inputs and not (op.has_bodies or op.is_stateful or op.has_side_effect):
            with contextlib.suppress(TypeError):  # an attribute that has no hash
                found[node] = numbers.setdefault((op, repr(op)), len(numbers))  # 0 is not -0
    return found


def _set(network: Network, shapes: Shapes) -> list[Node]:
    """Give parameters their shapes; return those that have changed."""
    changed = []
    for parameter, shape in zip(network.parameters, shapes, strict=True):
        if shape is not None and parameter.output.shape != shape:
            parameter.op = parameter.op.replace(shape=Shape(shape))
            changed.append(parameter)
    return changed


def _same(one: TensorDesc, other: TensorDesc) -> bool:
    """Whether two descriptions say the same, of elements too."""
    if one != other:
        return False
    a, b = one.value, other.value
    if a is None or b is None:
        return a is b
    return a is b or (a.dtype == b.dtype and a.dtype != object and np.array_equal(a, b))
