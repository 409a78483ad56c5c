"""Rules for operations that move elements, and for those that make them from sizes."""

from __future__ import annotations

from polydevice.ops.broadcast import Broadcast, BroadcastMode, Tile
from polydevice.ops.concat import Concat
from polydevice.ops.gather import Gather, GatherElements
from polydevice.ops.generate import OneHot, RangeOp
from polydevice.ops.reshape import Reshape, Squeeze, Unsqueeze
from polydevice.ops.slice import Slice, StridedSlice, slice_index
from polydevice.ops.split import Split, VariadicSplit
from polydevice.ops.transpose import Transpose
from polydevice.padding.labels import Label, fixed, regrouped, sizes_of, symbols_of
from polydevice.padding.rules import rule
from polydevice.padding.rules.pointwise import broadcast
from polydevice.padding.state import Kind, State, Step, UnprovableError, data
from polydevice.shape import normalize_axis

_FAR = 2**31 - 1
"""Limits of slices from here on mean "to the end"."""


@rule(Squeeze)
def _squeeze(step: Step) -> list[State]:
    labels = step.inputs[0].labels
    axes = step.ints(1, "axes") if len(step.inputs) > 1 else []
    if not axes:
        raise UnprovableError("it removes whichever axes are of size 1, as a padded one may be")
    for axis in (normalize_axis(axis, len(labels)) for axis in axes):
        step.refuse(labels[axis], axis, "removes an axis of size 1")
    return _reshape(step)


@rule(Reshape, Unsqueeze)
def _reshape(step: Step) -> list[State]:
    wanted = [step.sizes(axis) for axis in range(step.rank())]
    labels = regrouped(step.inputs[0].labels, wanted, step.known)
    if labels is None:
        raise UnprovableError("it joins or divides axes of which one is padded")
    return data(labels)


@rule(Transpose)
def _transpose(step: Step) -> list[State]:
    own = step.inputs[0]
    order = step.ints(1, "axes") or list(reversed(range(len(own.labels))))
    zeros = frozenset(place for place, axis in enumerate(order) if axis in own.zeros)
    return [State(Kind.DATA, tuple(own.labels[axis] for axis in order), zeros)]


@rule(Concat)
def _concat(step: Step) -> list[State]:
    rank = step.rank()
    axis = normalize_axis(int(getattr(step.op, "axis", 0)), rank)
    for each in step.inputs:
        step.refuse(each.labels[axis], axis, "joins values")
    others = [(*e.labels[:axis], (), *e.labels[axis + 1 :]) for e in step.inputs]
    made = broadcast(others)
    if any(each != made for each in others):
        raise UnprovableError("it joins values whose other axes need not be of one size")
    return data((*made[:axis], fixed(step.sizes(axis)[0]), *made[axis + 1 :]))


@rule(Split, VariadicSplit)
def _split(step: Step) -> list[State]:
    axis = normalize_axis(step.ints(1, "axis")[0], len(step.inputs[0].labels))
    outputs = range(len(step.nodes[0].outputs))
    return data(*(step.kept([axis], "cuts", number) for number in outputs))


@rule(Slice)
def _slice(step: Step) -> list[State]:
    rank = len(step.inputs[0].labels)
    given = [node.inputs for node in step.nodes]
    limits = [[port.desc.static_ints for port in ports[1:]] for ports in given]
    if any(each is None for trial in limits for each in trial):
        raise UnprovableError("its limits depend on the inputs")
    indices = []
    for start, stop, by, *axes in limits:
        indices.append(slice_index(rank, start or [], stop or [], by or [], *(axes or [None])))
    return data(
        tuple(_taken(step, axis, [index[axis] for index in indices], axis) for axis in range(rank))
    )


def _taken(step: Step, axis: int, indices: list[slice], place: int) -> Label:
    """Return the label of what a slice takes of an axis, in each of the networks tried."""
    label, index = step.inputs[0].labels[axis], indices[0]
    if all(each == slice(None) for each in indices):
        return label
    forward = all((i.start or 0) == 0 and i.step in (None, 1) for i in indices)
    if not symbols_of(label):
        if any(each != index for each in indices):
            found = step.found(place)
            if not forward or not _is_whole(step, found, indices):
                raise UnprovableError(f"it takes a part of axis {axis} that follows the sizes")
            return found
        return step.found(place)
    if forward:
        if all(i.stop is None or i.stop >= _FAR for i in indices):
            return label
        if index.stop == 1 and len({i.stop for i in indices}) == 1:
            return ()  # the first one, which is always there
        if _is_whole(step, label, indices):
            return label
    step.refuse(label, axis, "takes a part")
    return label


def _is_whole(step: Step, label: Label, indices: list[slice]) -> bool:
    """Return whether limits, before they are cut to what there is, are a padded size itself."""
    wanted = sizes_of(label, step.known, len(indices))
    return bool(symbols_of(label)) and tuple(each.stop for each in indices) == wanted


@rule(StridedSlice)
def _strided_slice(step: Step) -> list[State]:
    op = step.nodes[0].operation(StridedSlice)
    rank, count = len(step.inputs[0].labels), len(step.nodes)
    trials = []
    for node in step.nodes:
        begin, end, *strides = (port.desc.static_ints for port in node.inputs[1:])
        if begin is None or end is None or None in strides:
            raise UnprovableError("its limits depend on the inputs")
        by = strides[0] if strides and strides[0] is not None else [1] * len(begin)
        trials.append(op.index(rank, begin, end, by))
    made: list[Label] = []
    axis = 0
    for place in range(len(trials[0])):
        items = [trial[place] for trial in trials]
        if items[0] is None:
            made.append(())
            continue
        ranges = [item for item in items if isinstance(item, slice)]
        if len(ranges) == count:
            made.append(_taken(step, axis, ranges, len(made)))
        elif items != [0] * count:
            step.refuse(step.inputs[0].labels[axis], axis, "takes an element")
            if len(set(items)) > 1:
                raise UnprovableError(f"it takes an element of axis {axis} that follows the sizes")
        axis += 1
    return data(tuple(made))


@rule(Gather)
def _gather(step: Step) -> list[State]:
    op = step.nodes[0].operation(Gather)
    x, indices = (each.labels for each in step.inputs[:2])
    axis = normalize_axis(step.ints(2, "axis")[0], len(x))
    first = step.value(1)
    if first is None or first.size != 1 or int(first.reshape(-1)[0]) != 0:
        step.refuse(x[axis], axis, "takes elements")  # the first one is always there
    if step.inputs[1].kind is Kind.SIZES:
        raise UnprovableError("it takes elements whose places follow the sizes of the inputs")
    batch = op.batch_dims + (len(indices) if op.batch_dims < 0 else 0)
    if x[:batch] != indices[:batch]:
        raise UnprovableError("it pairs axes that need not be of one size")
    return data((*x[:axis], *indices[batch:], *x[axis + 1 :]))


@rule(GatherElements)
def _gather_elements(step: Step) -> list[State]:
    axis = normalize_axis(int(getattr(step.op, "axis", 0)), len(step.inputs[0].labels))
    labels, indices = step.kept([axis], "takes elements"), step.inputs[1].labels
    if any(a != b for n, (a, b) in enumerate(zip(labels, indices, strict=True)) if n != axis):
        raise UnprovableError("it pairs axes that need not be of one size")
    step.refuse(indices[axis], axis, "takes elements")
    return data(labels)


@rule(OneHot)
def _one_hot(step: Step) -> list[State]:
    step.only_first()
    labels = list(step.inputs[0].labels)
    axis = normalize_axis(int(getattr(step.op, "axis", -1)), len(labels) + 1)
    return data((*labels[:axis], step.found(axis), *labels[axis:]))


@rule(RangeOp)
def _range(step: Step) -> list[State]:
    start, by = step.value(0), step.value(2)
    if start is None or by is None or (by != 1).any():
        raise UnprovableError("it counts from, or by, a number that follows the sizes, or not by 1")
    return data((step.found(0),))


@rule(Broadcast)
def _broadcast(step: Step) -> list[State]:
    op = step.nodes[0].operation(Broadcast)
    own = step.inputs[0].labels
    is_usual = op.mode in (BroadcastMode.NUMPY, BroadcastMode.BIDIRECTIONAL)
    if any(own) and (not is_usual or len(step.inputs) > 2):
        raise UnprovableError("it broadcasts along chosen axes")
    rank = step.rank()
    aligned = ((),) * (rank - len(own)) + own
    return data(tuple(label or step.found(axis) for axis, label in enumerate(aligned)))


@rule(Tile)
def _tile(step: Step) -> list[State]:
    rank = step.rank()
    own = step.inputs[0].labels
    aligned: tuple[Label, ...] = ((),) * (rank - len(own)) + own
    made = []
    for axis, label in enumerate(aligned):
        sizes = step.sizes(axis)
        same = all(
            size == each
            for size, each in zip(sizes, sizes_of(label, step.known, len(sizes)), strict=True)
        )
        if not same:
            step.refuse(label, axis, "repeats elements")
        made.append(label if same else step.found(axis) if not label else fixed(sizes[0]))
    return data(tuple(made))
