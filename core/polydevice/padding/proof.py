"""prove: whether padding the inputs changes nothing of the outputs but that they are longer.

The network is tried with three sets of sizes, which tell what the size of each value follows, and
each operation's rule says why the elements that are no padding are what they would be without it.
Sizes that are computed inside the network may only become sizes: what calculates with them
(a mean over a length, a position counted from the end) is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from polydevice.bounds import computing_ahead
from polydevice.dataclass import dataclass
from polydevice.errors import UnsupportedNetworkError
from polydevice.network import Network
from polydevice.node import Evaluate, Node
from polydevice.ops.arithmetic import Add, Divide, Multiply, Subtract
from polydevice.ops.broadcast import Broadcast, Tile
from polydevice.ops.comparison import Equal, NotEqual
from polydevice.ops.concat import Concat
from polydevice.ops.convert import Convert, ConvertLike
from polydevice.ops.gather import Gather
from polydevice.ops.generate import RangeOp
from polydevice.ops.interpolate import InterpolateOp
from polydevice.ops.io import Parameter
from polydevice.ops.math import Ceiling, Floor, Identity, Negative
from polydevice.ops.op import Op
from polydevice.ops.reduce import ReduceProd, ReduceSum
from polydevice.ops.reshape import Reshape, ShapeOf, Squeeze, Unsqueeze
from polydevice.ops.select import Select
from polydevice.ops.slice import Slice, StridedSlice
from polydevice.ops.split import Split, VariadicSplit
from polydevice.ops.transpose import Transpose
from polydevice.padding.exact import check_calculated
from polydevice.padding.labels import Factors, Labels, fixed, sizes_of, symbols_of
from polydevice.padding.rules import find_rule
from polydevice.padding.state import Guard, Kind, State, Step, UnprovableError, data
from polydevice.padding.symbols import TRIALS, Symbol
from polydevice.padding.trials import trial_networks

_CALCULATED: tuple[type[Op], ...] = (
    Add, Subtract, Multiply, Divide, Negative, Floor, Ceiling, Identity, Convert, ConvertLike,
    Concat, Gather, Slice, StridedSlice, Split, VariadicSplit, Reshape, Squeeze, Unsqueeze,
    Transpose, Broadcast, ReduceProd, ReduceSum, Select, ShapeOf,
)  # fmt: skip
"""What sizes are computed with whose course the sizes that are tried show."""

_PATTERNS: dict[type[Op], tuple[int, ...]] = {
    Reshape: (1,), Broadcast: (1,), Tile: (1,), Slice: (1, 2, 3), StridedSlice: (1, 2, 3),
    RangeOp: (1,), ConvertLike: (1,), Gather: (1,), InterpolateOp: (1, 2),
}  # fmt: skip
"""Operation → inputs of which its rule knows what sizes mean."""


@dataclass(frozen=True)
class Proof:
    """Why padding changes nothing.

    Attributes:
        outputs: labels of the outputs, in order.
        guards: what has to be hidden from operations.
    """

    outputs: list[Labels]
    guards: list[Guard]

    def agrees(self, other: Proof) -> bool:
        """Whether another one differs in the sizes of axes that are not padded alone."""
        symbols = [
            [[symbols_of(label) for label in labels] for labels in proof.outputs]
            for proof in (self, other)
        ]
        return self.guards == other.guards and symbols[0] == symbols[1]


def prove(network: Network, symbols: Sequence[Symbol], evaluate: Evaluate | None) -> Proof:
    """Return why inputs may be padded; the network stays as it is.

    Raises:
        UnsupportedNetworkError: naming the operation and the axis that speak against it.
    """
    with computing_ahead():
        proofs = []
        for trials in trial_networks(network, symbols, evaluate):
            proofs.append(_Prover(symbols, trials).prove())
            if not proofs[0].agrees(proofs[-1]):
                raise UnsupportedNetworkError(
                    "what padding does depends on other sizes that the network leaves open"
                )
        return proofs[0]


class _Prover:
    """Goes through the operations of a network that is tried with several sizes."""

    def __init__(self, symbols: Sequence[Symbol], trials: Sequence[Network]) -> None:
        self._trials = trials
        self._symbols = symbols
        self._known: Factors = {symbol.name: symbol.trials for symbol in symbols}
        self._titles = {symbol.name: symbol.title for symbol in symbols}
        self._guarded = frozenset(each.name for each in symbols if not each.is_batch)
        self._states: dict[tuple[str, int], State] = {}
        self._guards: list[Guard] = []

    def prove(self) -> Proof:
        """Return why padding changes nothing; raises UnsupportedNetworkError."""
        lists = [trial.nodes() for trial in self._trials]
        names = [[node.name for node in each] for each in lists]
        if any(each != names[0] for each in names):
            raise UnsupportedNetworkError("a Reshape of it has a size written out")
        for nodes in zip(*lists, strict=True):
            try:
                found = self._node(nodes)
                self._check(nodes, found)
            except UnprovableError as error:
                raise UnsupportedNetworkError(f"{nodes[0].title}: {error}") from None
            for index, state in enumerate(found):
                self._states[nodes[0].name, index] = state
        outputs = [self._states[result.name, 0].labels for result in self._trials[0].results]
        for result, labels in zip(self._trials[0].results, outputs, strict=True):
            for axis, label in enumerate(labels):
                numbers = [factor for factor in label if isinstance(factor, int)]
                if symbols_of(label) and len(numbers) > 1:
                    raise UnsupportedNetworkError(
                        f"output {result.name!r} joins a padded axis with others in its axis {axis}"
                    )
        return Proof(outputs, self._guards)

    def _node(self, nodes: Sequence[Node]) -> list[State]:
        node = nodes[0]
        if isinstance(node.op, Parameter):
            return self._parameter(node)
        inputs = [self._states[port.node.name, port.index] for port in node.inputs]
        if node.op.is_stateful or node.op.has_side_effect:
            raise UnprovableError("what it computes depends on more than its inputs")
        if isinstance(node.op, ShapeOf):
            return self._values(nodes)
        if not any(each.is_padded or each.kind is Kind.SIZES for each in inputs):
            return self._untouched(node, inputs)
        if not any(each.kind is Kind.DATA for each in inputs) and self._is_calculated(node, inputs):
            check_calculated(nodes, inputs, self._known)
            return self._values(nodes)
        rule = find_rule(type(node.op))
        padded = next((each for each in inputs if each.is_padded), None)
        if rule is None:
            what = "its inputs are padded" if padded else "it calculates with sizes of the inputs"
            raise UnprovableError(f"{what}, and nothing is known of how it treats single items")
        self._check_patterns(node, inputs)
        step = Step(nodes, inputs, self._known, self._guarded, self._titles)
        made = rule(step)
        self._guards += step.guards
        return made

    def _parameter(self, node: Node) -> list[State]:
        which = self._trials[0].parameters.index(node)
        names = {place: symbol.name for symbol in self._symbols for place in symbol.places}
        shape = node.output.desc.shape
        sizes = () if shape is None else shape.static
        return data(
            tuple(
                (names[which, axis],) if (which, axis) in names else fixed(size)
                for axis, size in enumerate(sizes)
            )
        )

    @staticmethod
    def _untouched(node: Node, inputs: Sequence[State]) -> list[State]:
        """Return what is known of results of operations that see no padding."""
        if isinstance(node.op, Squeeze) and len(inputs) < 2 and inputs[0].kind is Kind.DATA:
            raise UnprovableError("it removes whichever axes are of size 1")
        kind = Kind.DATA if any(each.kind is Kind.DATA for each in inputs) else Kind.FIXED
        found = []
        for port in node.outputs:
            shape = port.desc.shape
            if shape is None or not shape.is_static:  # as many as the data says, without padding
                found.append(State(kind, ((-1,),) * (0 if shape is None else len(shape))))
            else:
                found.append(State(kind, tuple(fixed(size) for size in shape.static)))
        return found

    @staticmethod
    def _is_calculated(node: Node, inputs: Sequence[State]) -> bool:
        if isinstance(node.op, (Equal, NotEqual)):  # with what no size is, such as -1
            known = [p.desc.constant for p, s in zip(node.inputs, inputs) if s.kind is Kind.FIXED]
            return bool(known) and all(each is not None and (each <= 0).all() for each in known)
        if isinstance(node.op, Select) and inputs[0].kind is not Kind.FIXED:
            return False
        if isinstance(node.op, (Broadcast, Slice, StridedSlice)) and inputs[0].kind is Kind.FIXED:
            return False  # makes something of that size
        if isinstance(node.op, Reshape) and inputs[0].kind is Kind.FIXED:
            return False
        return isinstance(node.op, _CALCULATED)

    @staticmethod
    def _values(nodes: Sequence[Node]) -> list[State]:
        """Return what is known of results that are computed from sizes alone."""
        found = []
        for ports in zip(*(node.outputs for node in nodes), strict=True):
            values = [port.desc.constant for port in ports]
            first = values[0]
            if any(value is None or value.shape != first.shape for value in values):
                raise UnprovableError("what it computes of sizes of the inputs is not understood")
            same = all(bool((value == first).all()) for value in values)
            labels = tuple(fixed(size) for size in first.shape)
            found.append(State(Kind.FIXED if same else Kind.SIZES, labels))
        return found

    @staticmethod
    def _check_patterns(node: Node, inputs: Sequence[State]) -> None:
        """Refuse operations that calculate with sizes together with data."""
        kinds = [own for kind, own in _PATTERNS.items() if isinstance(node.op, kind)]
        legal = kinds[0] if kinds else ()
        for index, state in enumerate(inputs):
            if state.kind is Kind.SIZES and index not in legal:
                raise UnprovableError(
                    f"its input {index} is a size of the inputs, which padding changes"
                )

    def _check(self, nodes: Sequence[Node], found: Sequence[State]) -> None:
        """Compare what rules say of results' sizes with those that were tried."""
        for index, state in enumerate(found):
            for number, node in enumerate(nodes):
                shape = node.outputs[index].desc.shape if node.outputs else None
                if shape is None or not shape.is_static:
                    if state.is_padded:
                        raise UnprovableError("the size of its result depends on the inputs")
                    continue
                sizes = tuple(
                    sizes_of(label, self._known, TRIALS)[number] for label in state.labels
                )
                if sizes != shape.static:
                    raise UnprovableError(
                        f"the size of its result follows that of the inputs in another way: "
                        f"{list(shape)} is not {list(sizes)}"
                    )


def describe(guards: Sequence[Guard], titles: Mapping[str, str]) -> list[str]:
    """Return a line for each guard."""
    return [
        f"{guard.node}: axis {guard.axis} of input {guard.index} without the padding of "
        f"{titles[guard.symbol]}"
        for guard in guards
    ]
