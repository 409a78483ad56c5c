"""TensorIterator, Loop and If: operations that hold graphs of their own.

A body is a network whose parameters and results are tied to the operation's inputs and outputs by
index. It shares nothing with the graph around it: what it uses from there comes in as an input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from polydevice.dataclass import dataclass
from polydevice.dtype import ElementType
from polydevice.errors import ElementTypeError, ModelFormatError, NetworkError, ShapeError
from polydevice.ops.op import EVERYWHERE, Op, attribute, operation
from polydevice.shape import Dim, DimLike, Shape, normalize_axis, union
from polydevice.tensor import TensorDesc


class Body(Protocol):
    """A graph inside an operation; `polydevice.network.Network` is one."""

    parameters: list[Any]
    results: list[Any]

    def infer_results(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return type and shape of every result for such parameters; changes nothing."""


@dataclass(frozen=True)
class Slicing:
    """How a value is cut into, or joined from, one part per iteration.

    Attributes:
        axis: dimension that is cut.
        start: index of the first element used; a negative one counts from the end.
        end: index of the last element used, likewise.
        stride: 1 to take parts from start to end; negative to begin with the part that ends at
            start and go backwards.
        part_size: length of one part along the axis.
    """

    axis: int
    start: int = 0
    end: int = -1
    stride: int = 1
    part_size: int = 1

    def count(self, size: int) -> int:
        """Return the number of parts of a dimension of `size`; raises ShapeError if none fits."""
        if size == 0:
            return 0
        start, end = self._range(size)
        if self.part_size < 1 or not (0 <= start < size and 0 <= end < size):
            raise ShapeError(f"{self} does not fit a dimension of {size}")
        return (abs(end - start) + 1) // self.part_size

    def part(self, iteration: int, size: int) -> slice:
        """Return where the part of an iteration lies in a dimension of `size`."""
        start, _ = self._range(size)
        if self.stride > 0:
            first = start + iteration * self.part_size
        else:
            first = start + 1 - (iteration + 1) * self.part_size
        return slice(first, first + self.part_size)

    def _range(self, size: int) -> tuple[int, int]:
        return (
            self.start + size if self.start < 0 else self.start,
            self.end + size if self.end < 0 else self.end,
        )


@dataclass(frozen=True)
class BodyInput:
    """Ties input `input` of the operation to parameter `parameter` of the body."""

    input: int
    parameter: int
    slicing: Slicing | None = None


@dataclass(frozen=True)
class BodyOutput:
    """Ties result `result` of the body to output `output` of the operation."""

    output: int
    result: int
    slicing: Slicing | None = None


@dataclass(frozen=True)
class BackEdge:
    """Carries result `result` of one iteration to parameter `parameter` of the next."""

    result: int
    parameter: int


class Iteration(Op):
    """What TensorIterator and Loop share: a body that runs once per iteration."""

    has_bodies = True

    body: Body
    body_inputs: tuple[BodyInput, ...]
    body_outputs: tuple[BodyOutput, ...]
    back_edges: tuple[BackEdge, ...]

    def iterations(self, inputs: Sequence[TensorDesc]) -> int | None:
        """Return how often the body runs, None when that is not known before inference."""
        for tie in self.body_inputs:
            if tie.slicing is not None:
                shape = inputs[tie.input].shape
                if shape is None:
                    return None
                size = shape[normalize_axis(tie.slicing.axis, len(shape))]
                return tie.slicing.count(size) if isinstance(size, int) else None
        return None

    def parameters(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return what the body's parameters are in every iteration.

        A parameter with a back edge covers its initial value and all later ones.

        Raises:
            ShapeError: slices do not fit an input.
        """
        return self._settled(inputs)[0]

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return what leaves the last iteration, or all of them joined."""
        results = self._settled(inputs)[1]
        count = self.iterations(inputs)
        outputs: dict[int, TensorDesc] = {}
        for tie in self.body_outputs:
            desc = results[tie.result].without_value()
            if tie.slicing is None:
                outputs[tie.output] = self._last_value(tie.result, desc, inputs, count)
            else:
                outputs[tie.output] = _joined(desc, tie.slicing, count)
        return [outputs[index] for index in sorted(outputs)]

    def _last_value(
        self, result: int, desc: TensorDesc, inputs: Sequence[TensorDesc], count: int | None
    ) -> TensorDesc:
        """Cover the initial value too where the body may not run at all."""
        if count is not None and count > 0:
            return desc
        for edge in self.back_edges:
            if edge.result == result:
                for tie in self.body_inputs:
                    if tie.parameter == edge.parameter:
                        return desc.with_shape(union(desc.shape, inputs[tie.input].shape))
        return desc

    def _settled(self, inputs: Sequence[TensorDesc]) -> tuple[list[TensorDesc], list[TensorDesc]]:
        """Find parameters and results that do not change any more from iteration to iteration."""
        descs = [parameter.output.desc.without_value() for parameter in self.body.parameters]
        carried = {edge.parameter: edge.result for edge in self.back_edges}
        for tie in self.body_inputs:
            given = inputs[tie.input]
            if tie.slicing is not None:
                given = _part(given, tie.slicing)
            elif tie.parameter in carried:
                given = given.without_value()
            descs[tie.parameter] = given
        self._own_parameters(descs)
        results = self.body.infer_results(descs)
        for parameter, result in carried.items():
            self._check_carried(descs[parameter], results[result])
        # Every round frees at least one size or a rank, or is the last.
        while changed := {
            parameter: wider
            for parameter, result in carried.items()
            if (wider := union(descs[parameter].shape, results[result].shape))
            != descs[parameter].shape
        }:
            for parameter, shape in changed.items():
                descs[parameter] = descs[parameter].with_shape(_widened(shape))
            results = self.body.infer_results(descs)
        return descs, results

    def _check_carried(self, given: TensorDesc, made: TensorDesc) -> None:
        """Raise ElementTypeError unless what an iteration hands on is of the type it was given."""
        types = {given.element_type, made.element_type} - {ElementType.dynamic}
        if len(types) > 1 or given.kind != made.kind:
            raise ElementTypeError(
                f"{self.type}: an iteration is given {given} and hands {made} to the next"
            )

    def _own_parameters(self, descs: list[TensorDesc]) -> None:
        """Describe the parameters that the operation itself feeds."""


@operation("TensorIterator")
class TensorIterator(Iteration):
    """Runs a body once for every slice of its inputs.

    Inputs:  any number; each is sliced, carried from iteration to iteration, or the same in all
    Outputs: a result of the last iteration, or of all of them joined along an axis
    Raises:  ShapeError if slices do not fit
    Source:  OpenVINO opset1 TensorIterator
    """

    body: Body = attribute(ir="")
    body_inputs: tuple[BodyInput, ...] = attribute(ir="")
    body_outputs: tuple[BodyOutput, ...] = attribute(ir="")
    back_edges: tuple[BackEdge, ...] = attribute(ir="")
    strings_at = EVERYWHERE
    containers_at = EVERYWHERE

    def iterations(self, inputs: Sequence[TensorDesc]) -> int | None:
        """Return the number of slices; without any, what the joined outputs' range says."""
        if any(tie.slicing is not None for tie in self.body_inputs):
            return super().iterations(inputs)
        for tie in self.body_outputs:
            cut = tie.slicing
            if cut is not None and cut.start >= 0 and cut.end >= 0:
                return abs(cut.end - cut.start) // cut.part_size
        return 1


@operation("Loop", since=5)
class Loop(Iteration):
    """Runs a body up to a number of times, while a condition holds.

    Inputs:  trip count (i32 or i64 scalar, -1 without bound); condition before the first
             iteration (boolean scalar); then as TensorIterator
    Outputs: a result of the last iteration, or of all of them joined along an axis
    Raises:  ShapeError if slices do not fit; ElementTypeError for other types
    Source:  OpenVINO opset5 Loop; ONNX Loop

    `current_iteration` is the body's parameter that counts iterations from 0,
    `execution_condition` its result that says whether to go on; None where there is none.
    """

    body: Body = attribute(ir="")
    body_inputs: tuple[BodyInput, ...] = attribute(ir="")
    body_outputs: tuple[BodyOutput, ...] = attribute(ir="")
    back_edges: tuple[BackEdge, ...] = attribute(ir="")
    current_iteration: int | None = attribute(default=None, ir="")
    execution_condition: int | None = attribute(default=None, ir="")
    integers_at = (0,)
    strings_at = EVERYWHERE
    containers_at = EVERYWHERE[2:]

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return what leaves the last iteration, or all of them joined."""
        if inputs[1].element_type is not ElementType.boolean:
            raise ElementTypeError(f"the condition is {inputs[1]}; Loop takes a boolean there")
        return super().infer(inputs)

    def iterations(self, inputs: Sequence[TensorDesc]) -> int | None:
        """Return the trip count when it is known and no condition can end the loop before."""
        trips, first = inputs[0].static_ints, inputs[1].static_ints
        if first is not None and not first[0]:
            return 0
        if first is None or trips is None or trips[0] < 0 or not self._always_goes_on():
            return None
        return trips[0]

    def _always_goes_on(self) -> bool:
        if self.execution_condition is None:
            return True
        value = self.body.results[self.execution_condition].inputs[0].desc.constant
        return value is not None and bool(value.all())

    def _own_parameters(self, descs: list[TensorDesc]) -> None:
        if self.current_iteration is not None:
            own = self.body.parameters[self.current_iteration].op
            descs[self.current_iteration] = TensorDesc(own.element_type, own.shape)


@operation("If", since=8)
class If(Op):
    """Runs one of two bodies.

    Inputs:  condition (boolean scalar), then any number for the bodies
    Outputs: what the chosen body gives; of unknown size or rank where the bodies differ
    Raises:  ShapeError if the bodies give different element types
    Source:  OpenVINO opset8 If; ONNX If
    """

    has_bodies = True

    then_body: Body = attribute(ir="")
    else_body: Body = attribute(ir="")
    then_inputs: tuple[BodyInput, ...] = attribute(ir="")
    else_inputs: tuple[BodyInput, ...] = attribute(ir="")
    then_outputs: tuple[BodyOutput, ...] = attribute(ir="")
    else_outputs: tuple[BodyOutput, ...] = attribute(ir="")
    strings_at = EVERYWHERE
    containers_at = EVERYWHERE[1:]

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the chosen body's results, or what covers both when the choice is not known.

        A body that does not accept the inputs' shapes cannot be the one that runs: models choose
        by a value (a sampling rate, say) between bodies for different sizes.
        """
        condition = inputs[0].static_ints
        if condition is not None:
            chosen = bool(condition[0])
            return self._branch(inputs, chosen)
        try:
            then_results = self._branch(inputs, True)
        except NetworkError:
            return self._branch(inputs, False)  # inputs of these shapes never take the other one
        try:
            else_results = self._branch(inputs, False)
        except NetworkError:
            return then_results
        return [_either(a, b) for a, b in zip(then_results, else_results, strict=True)]

    def _branch(self, inputs: Sequence[TensorDesc], chosen: bool) -> list[TensorDesc]:
        body = self.then_body if chosen else self.else_body
        descs = [parameter.output.desc.without_value() for parameter in body.parameters]
        for tie in self.then_inputs if chosen else self.else_inputs:
            descs[tie.parameter] = inputs[tie.input]
        results = body.infer_results(descs)
        ties = self.then_outputs if chosen else self.else_outputs
        made = {tie.output: results[tie.result].without_value() for tie in ties}
        return [made[index] for index in sorted(made)]


def _part(desc: TensorDesc, slicing: Slicing) -> TensorDesc:
    if desc.kind != "tensor":
        raise ElementTypeError(f"the sliced input is {desc}; a loop cuts tensors")
    if desc.shape is None:
        return desc.without_value()
    axis = normalize_axis(slicing.axis, len(desc.shape))
    sizes: list[DimLike] = list(desc.shape)
    size = sizes[axis]
    if isinstance(size, int):
        slicing.count(size)
    sizes[axis] = slicing.part_size
    return desc.with_shape(sizes)


def _joined(desc: TensorDesc, slicing: Slicing, count: int | None) -> TensorDesc:
    if desc.shape is None:
        return desc
    axis = normalize_axis(slicing.axis, len(desc.shape))
    sizes: list[DimLike] = list(desc.shape)
    sizes[axis] = Dim() if count is None else sizes[axis] * count
    return desc.with_shape(sizes)


def _widened(shape: Shape | None) -> Shape | None:
    """Free a changing size entirely, so that a growing one settles in one more round."""
    if shape is None:
        return None
    return Shape(size if isinstance(size, int) else Dim() for size in shape)


def _either(a: TensorDesc, b: TensorDesc) -> TensorDesc:
    if a.element_type is not b.element_type and ElementType.dynamic not in (
        a.element_type,
        b.element_type,
    ):
        raise ShapeError(f"the bodies give {a} and {b}; both must have one element type")
    if a.kind != b.kind:
        raise ModelFormatError(f"the bodies give {a} and {b}; both must be of one kind")
    return TensorDesc(a.element_type, union(a.shape, b.shape), None, a.kind)
