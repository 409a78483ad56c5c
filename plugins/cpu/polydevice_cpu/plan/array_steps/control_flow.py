"""If, Loop and TensorIterator: bodies are compiled networks of their own, shared by requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from polydevice.bounds import current_bounds
from polydevice.dtype import Array
from polydevice.errors import InferenceError, ShapeError
from polydevice.network import Network
from polydevice.ops.control_flow import (
    Body,
    BodyInput,
    BodyOutput,
    If,
    Iteration,
    Loop,
    Slicing,
    TensorIterator,
)
from polydevice.shape import Shape, normalize_axis
from polydevice.tensor import TensorDesc, desc_of
from polydevice_cpu.plan.array_steps.bags import bags_of
from polydevice_cpu.plan.array_steps.growth import KEPT
from polydevice_cpu.plan.array_steps.start import starts
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.binding.loops.growing import Growing
from polydevice_cpu.plan.binding.loops.iterations import Taken
from polydevice_cpu.plan.binding.loops.rounds import Rounds, holds
from polydevice_cpu.plan.compiled import RequestPlans, shapes_of
from polydevice_cpu.plan.step import Compute, Start

ITERATION_LIMIT = 1 << 24
"""Iterations after which a loop without a bound counts as endless."""


def _request_plans(body: Body, context: Context) -> RequestPlans:
    assert isinstance(body, Network)
    return context.compiled.body(body).request_plans(context)


def _sources(ties: Sequence[BodyInput]) -> list[int]:
    """Which input of the operation feeds each parameter of the body."""
    return [tie.input for tie in sorted(ties, key=lambda tie: tie.parameter)]


def _results(ties: Sequence[BodyOutput]) -> list[int]:
    """Which result of the body is each output of the operation."""
    return [tie.result for tie in sorted(ties, key=lambda tie: tie.output)]


@starts(If)
def start_if(op: If) -> Start:
    """Run the chosen body; a body that is never chosen is never planned.

    Results are new arrays, which may be handed out: those of a merged decoder are megabytes.
    """

    def start(context: Context) -> Compute:
        then_, else_ = (
            (_request_plans(body, context), _sources(ties_in), _results(ties_out))
            for body, ties_in, ties_out in (
                (op.then_body, op.then_inputs, op.then_outputs),
                (op.else_body, op.else_inputs, op.else_outputs),
            )
        )

        def compute(*inputs: Array) -> list[Array]:
            plans, sources, results = then_ if holds(inputs[0]) else else_
            return plans.infer_new([inputs[k] for k in sources], results)

        return compute

    return start


@starts(TensorIterator, Loop)
def start_iteration(op: Iteration) -> Start:
    """Run the body once per iteration; carried values never leave the arrays they are in."""
    bags = bags_of(op)

    def start(context: Context) -> Compute:
        plans = _request_plans(op.body, context)
        bounds = _Bounds(op)

        def compute(*inputs: Array) -> list[Array]:
            count, goes_on = bounds(inputs)
            if bags is not None:
                rows = bags.compute(count, inputs) if goes_on and count else None
                if rows is not None:
                    return [rows]
            return _iterate(op, plans, inputs, (count, goes_on))

        return compute

    return start


def _iterate(
    op: Iteration, plans: RequestPlans, inputs: Sequence[Array], limits: tuple[int | None, bool]
) -> list[Array]:
    given = {tie.parameter: inputs[tie.input] for tie in op.body_inputs if tie.slicing is None}
    number = _number(op)
    given.update(number)
    count, goes_on = limits
    changing = _changing(op, inputs, count)
    condition = op.execution_condition if isinstance(op, Loop) else None
    joined = [tie for tie in op.body_outputs if tie.slicing is not None]
    parts: dict[int, list[Array]] = {tie.output: [] for tie in joined}
    bounds, end = current_bounds(), ITERATION_LIMIT + 1 if count is None else count
    iteration = 0
    results: Sequence[Array] | None = None
    rounds: Rounds | None = None
    growing: Growing | None = None
    if goes_on and end > 0:
        given.update({parameter: part(0) for parameter, part in changing.items()})
        rounds, growing = _bound(op, plans, given)
    one_by_one = _OneByOne(op, plans, given)
    if growing is not None:
        taken = [(out.result, parts[out.output]) for out in joined]
        iteration, goes_on, results = growing.run(given, min(end, ITERATION_LIMIT), taken)
    held = sum(part.nbytes for each in parts.values() for part in each)
    bounds.admit(2 * held, f"{op.type}, after {iteration} iterations,")
    while goes_on and iteration < end:
        if iteration >= ITERATION_LIMIT:
            raise InferenceError(f"{op.type} has run {ITERATION_LIMIT} iterations without an end")
        values = {parameter: part(iteration) for parameter, part in changing.items()}
        if rounds is None:
            given.update(values)
            for array in number.values():
                array.fill(iteration)
            results = one_by_one.run()
        else:
            results = rounds.run(iteration, values)
        for out in joined:
            part = results[out.result]
            parts[out.output].append(part if rounds is None else part.copy())
            held += part.nbytes
        if held:  # as much again is needed to join them
            bounds.admit(2 * held, f"{op.type}, after {iteration + 1} iterations,")
        if condition is not None:
            goes_on = holds(results[condition])
        iteration += 1
        if rounds is not None and goes_on:
            kept = [_taken(out, results[out.result], parts[out.output]) for out in joined]
            most = min(end, ITERATION_LIMIT)
            iteration, goes_on = rounds.go_on(iteration, most, condition, changing, kept)
            results = rounds.results(iteration - 1)
    plans.note(rounds, iteration)
    if (rounds is not None or growing is not None) and results is not None:
        results = [result.copy() for result in results]
    return _collect(op, inputs, given, results, parts)


class _OneByOne:
    """Iterations that need not be like the last one; carried values go into `given`."""

    def __init__(self, op: Iteration, plans: RequestPlans, given: dict[int, Array]) -> None:
        self._infer, self._given = plans.infer, given
        self._order = sorted(given)
        self._carried = [(edge.parameter, edge.result) for edge in op.back_edges]
        self._check = current_bounds().check

    def run(self) -> Sequence[Array]:
        """Run one."""
        self._check()
        given = self._given
        results = self._infer([given[parameter] for parameter in self._order])
        for parameter, result in self._carried:
            given[parameter] = results[result]
        return results


def _changing(
    op: Iteration, inputs: Sequence[Array], count: int | None
) -> dict[int, Callable[[int], Array]]:
    """What returns the slice that an iteration gets, by parameter."""
    ties = [(tie, tie.slicing) for tie in op.body_inputs if tie.slicing is not None]
    return {t.parameter: _parts(inputs[t.input], slicing, count) for t, slicing in ties}


def _parts(whole: Array, slicing: Slicing, count: int | None) -> Callable[[int], Array]:
    """Return what returns the part of an iteration."""
    axis = normalize_axis(slicing.axis, whole.ndim)
    before = (slice(None),) * axis
    if slicing.part_size == 1 and count:  # cut at once: an iteration takes 0.1 instead of 0.8 us
        step = 1 if slicing.stride > 0 else -1
        first = slice(slicing.part(0, whole.shape[axis]).start, None, step)
        order = (axis, *range(axis), *range(axis + 1, whole.ndim))
        place = (first, *before, None)
        parts = (whole.transpose(order) if axis else whole)[place]
        if len(parts) >= count:
            return parts.__getitem__

    def part(iteration: int) -> Array:
        place = (*before, slicing.part(iteration, whole.shape[axis]))
        return whole[place]

    return part


def _bound(
    op: Iteration, plans: RequestPlans, given: dict[int, Array]
) -> tuple[Rounds | None, Growing | None]:
    """The body bound for all iterations, which read `given` first.

    Either for iterations that are all alike, or for each of them; neither where it is neither.
    """
    for parameter, array in given.items():
        if not array.flags.c_contiguous:
            given[parameter] = array.copy(order="C")
    shapes = shapes_of([given[k] for k in sorted(given)])
    rounds = plans.rounds(op, shapes)
    if rounds is None:
        return None, plans.growing(op, shapes)
    rounds.begin(given)
    return rounds, None


class _Bounds:
    """How many iterations there are at most (None: no bound), and whether there is a first one.

    To infer the number takes 16 us, so that it is kept for the sizes of the inputs.
    """

    def __init__(self, op: Iteration) -> None:
        self._op = op
        self._known: dict[tuple[tuple[int, ...], ...], int | None] = {}

    def __call__(self, inputs: Sequence[Array]) -> tuple[int | None, bool]:
        if isinstance(self._op, Loop):
            trips = int(np.asarray(inputs[0]).reshape(-1)[0])
            return (None if trips < 0 else trips), holds(inputs[1])
        sizes = tuple([np.shape(value) for value in inputs])
        if sizes not in self._known:
            if len(self._known) >= KEPT:
                self._known.clear()
            count = self._op.iterations([_described(value) for value in inputs])
            self._known[sizes] = count
        return self._known[sizes], True


def _taken(out: BodyOutput, result: Array, parts: list[Array]) -> Taken:
    assert out.slicing is not None
    axis = normalize_axis(out.slicing.axis, result.ndim)
    return Taken(out.result, parts, axis, backwards=out.slicing.stride < 0)


def _number(op: Iteration) -> dict[int, Array]:
    """The parameter that takes the iteration's number, if one does, and an array of its form."""
    parameter = op.current_iteration if isinstance(op, Loop) else None
    if parameter is None:
        return {}
    own = op.body.parameters[parameter].output.desc
    shape = own.shape.static if own.shape is not None and own.shape.is_static else ()
    return {parameter: np.zeros(shape, own.element_type.dtype)}


def _described(value: Array) -> TensorDesc:
    return desc_of(np.asarray(value))


def _collect(
    op: Iteration,
    inputs: Sequence[Array],
    given: dict[int, Array],
    results: Sequence[Array] | None,
    parts: dict[int, list[Array]],
) -> list[Array]:
    """The operation's outputs after the last iteration."""
    outputs: list[Array] = []
    carried = {edge.result: edge.parameter for edge in op.back_edges}
    for tie in sorted(op.body_outputs, key=lambda tie: tie.output):
        if tie.slicing is not None:
            outputs.append(_joined(op, tie, inputs, parts[tie.output]))
        elif results is not None:
            outputs.append(results[tie.result])
        elif tie.result in carried:
            outputs.append(given[carried[tie.result]])
        else:
            raise InferenceError(f"{op.type} ran no iteration, so output {tie.output} has no value")
    return outputs


def _joined(op: Iteration, tie: BodyOutput, inputs: Sequence[Array], parts: list[Array]) -> Array:
    assert tie.slicing is not None
    if parts:
        ordered = parts if tie.slicing.stride > 0 else parts[::-1]
        try:
            return np.concatenate(ordered, axis=tie.slicing.axis)
        except ValueError as error:
            shapes = ", ".join(dict.fromkeys(str(Shape(part.shape)) for part in parts))
            raise ShapeError(
                f"output {tie.output} cannot join what its iterations give along axis "
                f"{tie.slicing.axis}: {shapes}"
            ) from error
    index = sorted(t.output for t in op.body_outputs).index(tie.output)
    desc = op.infer([_described(value) for value in inputs])[index]
    sizes = [size if isinstance(size, int) else 0 for size in desc.shape or ()]
    if sizes:
        sizes[normalize_axis(tie.slicing.axis, len(sizes))] = 0
    return np.empty(sizes, desc.element_type.dtype)
