"""StridedSlice, Slice and SliceScatter: regular parts of a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from polydevice.errors import ShapeError
from polydevice.interval import Interval, IntLike
from polydevice.ops.op import Op, attribute, operation
from polydevice.ops.sizes import shared_sizes
from polydevice.shape import DimLike, bounds, count_of, dim, normalize_axis
from polydevice.symbolic_size import is_symbolic, whole
from polydevice.tensor import TensorDesc

Index: TypeAlias = int | slice | None
"""One item of a NumPy index: an element, a range, or a new axis of size 1."""

_FAR = 2**31 - 1
"""Limits this far away mean "to the end" in both formats."""


def resolved(index: slice, size: int) -> slice:
    """Return what ``index`` takes from an axis of `size` as a slice of the axis's own positions.

    Python's rules but for one: going backwards, a start before the axis is its first element,
    where Python takes nothing. ONNX's Slice says so, and OpenVINO does likewise in Slice and
    StridedSlice. A step that reaches no second element becomes 1, however large it is.
    """
    start, step = index.start, 1 if index.step is None else index.step
    if step < 0 and start is not None and start < -size:
        start = 0
    if any(map(is_symbolic, (size, start, index.stop))):
        return _resolved_formula(slice(start, index.stop, step), size)
    taken = range(*slice(start, index.stop, step).indices(size))
    if len(taken) < 2:
        return slice(taken[0], taken[0] + 1, 1) if taken else slice(0, 0, 1)
    return slice(taken.start, None if taken.stop < 0 else taken.stop, step)


def _resolved_formula(index: slice, size: int) -> slice:
    """Return the same of sizes that are symbolic, which `range` would make numbers of."""
    step = index.step
    if step < 0:
        return _resolved_backwards(index, size)
    start, stop = (
        default if limit is None else max(limit + size if limit < 0 else min(limit, size), 0)
        for limit, default in ((index.start, 0), (index.stop, size))
    )
    if step == 1 and start < stop:
        return slice(start, stop, 1)
    if stop - start <= step:
        return slice(start, start + 1, 1) if start < stop else slice(0, 0, 1)
    return slice(start, stop, step)


def _resolved_backwards(index: slice, size: int) -> slice:
    last, step = size - 1, index.step
    start, stop = (
        default if limit is None else limit + size if limit < 0 else min(limit, last)
        for limit, default in ((index.start, last), (index.stop, -1))
    )
    stop = max(stop, -1)
    if start <= stop:
        return slice(0, 0, 1)
    if start - stop <= -step:
        return slice(start, start + 1, 1)
    return slice(start, None if stop < 0 else stop, step)


def sliced_size(size: DimLike, index: slice) -> DimLike:
    """Return how many elements ``index`` takes from an axis of `size` (see `resolved`).

    A limit that is an `Interval` may be anything.
    """
    low, high = bounds(size)
    start, stop, step = index.start, index.stop, 1 if index.step is None else index.step
    if any(isinstance(limit, Interval) for limit in (start, stop, step)):
        return dim(0, high)
    if isinstance(size, int) and any(map(is_symbolic, (size, start, stop))):
        taken = resolved(index, size)
        if taken.step > 0:
            return whole(-((taken.start - taken.stop) // taken.step))
        before = -1 if taken.stop is None else taken.stop
        return whole(-((before - taken.start) // -taken.step))
    if isinstance(size, int):
        return len(range(*resolved(index, size).indices(size)))
    if step < 0 and start is not None and low < -start:
        # Some sizes have the start before the axis, and may then give one element or none.
        most = bounds(_unclamped(size, index))[1]
        return dim(0, None if most is None else max(most, 1))
    return _unclamped(size, index)


def _unclamped(size: DimLike, index: slice) -> DimLike:
    """How many elements Python takes from an axis whose size is not known."""
    low, high = bounds(size)
    start, stop, step = index.start, index.stop, 1 if index.step is None else index.step
    forward = step > 0
    if stop is not None and (stop >= _FAR if forward else stop < -_FAR):
        stop = None
    if start is not None and (start < -_FAR if forward else start >= _FAR):
        start = None
    # Whether each limit counts from the back of the axis, so that it moves with the size.
    start_moves = not forward if start is None else start < 0
    stop_moves = forward if stop is None else stop < 0
    if (start_moves and not stop_moves) if forward else (stop_moves and not start_moves):
        reach = -(start or 0) if forward else (start or 0) + 1  # first grows, then shrinks
        return dim(0, -(-reach // abs(step)))
    index = slice(start, stop, step)
    if high is None and start_moves == stop_moves:
        high = _FAR  # the two limits keep their distance
    least = len(range(*index.indices(low)))
    return dim(least, None if high is None else len(range(*index.indices(high))))


@operation("StridedSlice")
class StridedSlice(Op):
    """Take ranges with a stride from each axis; insert, drop and skip axes by masks.

    Masks are tuples of 0 and 1 over the positions of begin and end. In `begin_mask` and
    `end_mask` 1 means "from the start", "to the end"; `new_axis_mask` inserts an axis of size 1,
    `shrink_axis_mask` takes one element and drops the axis, `ellipsis_mask` stands for as many
    whole axes as are left.

    Inputs:  x                    any shape and type
             begin, end, strides  1-D integer of one length; strides optional (1)
    Outputs: y                    type of x
    Raises:  ShapeError for a stride of 0, more positions than axes, or an element outside its axis
    Source:  OpenVINO opset1 StridedSlice
    """

    begin_mask: tuple[int, ...] = attribute(default=())
    end_mask: tuple[int, ...] = attribute(default=())
    new_axis_mask: tuple[int, ...] = attribute(default=())
    shrink_axis_mask: tuple[int, ...] = attribute(default=())
    ellipsis_mask: tuple[int, ...] = attribute(default=())
    shape_arithmetic = True
    strings_at = (0,)
    integers_at = (1, 2, 3)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the size of each range; unknown where its limits are."""
        self.check_count(inputs, 3, 4)
        x, begin, end = inputs[:3]
        counts = [count_of(desc.shape) for desc in (begin, end)]
        limits = dict(zip(("begin", "end", "stride"), inputs[1:], strict=False))
        shared_sizes({name: (desc, "n") for name, desc in limits.items()})
        count = next((n for n in counts if n is not None), None)
        if x.shape is None or count is None:
            return [x.with_shape(None)]
        unknown: list[IntLike] = [Interval()] * count
        strides = inputs[3].ints if len(inputs) > 3 else [1] * count
        items = self.index(
            len(x.shape),
            unknown if begin.ints is None else begin.ints,
            unknown if end.ints is None else end.ints,
            unknown if strides is None else strides,
        )
        sizes: list[DimLike] = []
        axis = 0
        for item in items:
            if item is None:
                sizes.append(1)
                continue
            size = x.shape[axis]
            if isinstance(item, slice):
                sizes.append(sliced_size(size, item))
            elif isinstance(size, int) and not -size <= item < size:
                raise ShapeError(f"element {item} of axis {axis} is taken, which has {size}")
            axis += 1
        return [x.with_shape(sizes)]

    def index(
        self,
        rank: int,
        begin: Sequence[IntLike],
        end: Sequence[IntLike],
        strides: Sequence[IntLike],
    ) -> list[Index]:
        """Return the NumPy index that takes this slice from a tensor of `rank`.

        Limits that are an `Interval` (unknown) stay in the slice objects as they are.

        Raises:
            ShapeError: for a stride of 0, or more positions than axes.
        """
        count = len(begin)
        mask = {
            name: [i < len(bits) and bits[i] == 1 for i in range(count)]
            for name, bits in self.attributes().items()
        }
        used = sum(not (mask["new_axis_mask"][i] or mask["ellipsis_mask"][i]) for i in range(count))
        if used > rank:
            raise ShapeError(f"{used} slice positions are more than the {rank} axes of the input")
        items: list[Index] = []
        for i in range(count):
            if mask["ellipsis_mask"][i]:
                items += [slice(None)] * (rank - used)
            elif mask["new_axis_mask"][i]:
                items.append(None)
            elif mask["shrink_axis_mask"][i]:
                start = 0 if mask["begin_mask"][i] else begin[i]
                items.append(start if isinstance(start, int) else 0)
            elif strides[i] == 0:
                raise ShapeError(f"stride 0 at position {i}")
            else:
                items.append(
                    slice(
                        None if mask["begin_mask"][i] else begin[i],
                        None if mask["end_mask"][i] else end[i],
                        strides[i],
                    )
                )
        if not any(mask["ellipsis_mask"]):
            items += [slice(None)] * (rank - used)
        return items


def slice_index(
    rank: int,
    start: Sequence[IntLike],
    stop: Sequence[IntLike],
    step: Sequence[IntLike],
    axes: Sequence[int] | None,
) -> list[slice]:
    """Return one slice object per axis for Slice's inputs; unknown limits stay an `Interval`.

    Raises:
        ShapeError: for a step of 0, a repeated axis, or lists of different lengths.
    """
    places = [normalize_axis(a, rank) for a in (range(len(start)) if axes is None else axes)]
    if not len(start) == len(stop) == len(step) == len(places):
        raise ShapeError(
            f"start, stop, step and axes have {len(start)}, {len(stop)}, {len(step)} and "
            f"{len(places)} elements; they need the same number"
        )
    if len(set(places)) != len(places):
        raise ShapeError(f"axes {list(axes or ())} name an axis twice")
    if any(s == 0 for s in step):
        raise ShapeError("step 0")
    items = [slice(None)] * rank
    for axis, first, last, by in zip(places, start, stop, step, strict=True):
        items[axis] = slice(first, last, by)
    return items


@operation("Slice", since=8)
class Slice(Op):
    """Take start:stop:step from each of the axes (Python's rules; see `resolved`).

    Inputs:  x                  any shape and type
             start, stop, step  1-D integer of one length
             axes               optional, of that length; 0, 1, … when left out
    Outputs: y                  type of x
    Raises:  ShapeError for a step of 0, a repeated axis, or lists of different lengths
    Source:  OpenVINO opset8 Slice; ONNX Slice-13
    """

    shape_arithmetic = True
    strings_at = (0,)
    integers_at = (1, 2, 3, 4)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the size of each range; unknown where its limits are."""
        self.check_count(inputs, 4, 5)
        return [sliced_desc(inputs[0], inputs[1:])]


def sliced_desc(x: TensorDesc, limits: Sequence[TensorDesc]) -> TensorDesc:
    """Describe the part of x that start, stop, step and perhaps axes select."""
    start, stop, step = limits[:3]
    if x.shape is None:
        return x.with_shape(None)
    axes = limits[3].static_ints if len(limits) > 3 else None
    counts = [count_of(desc.shape) for desc in limits]
    count = next((n for n in counts if n is not None), None)
    if count is None or (len(limits) > 3 and axes is None):
        return x.with_shape([dim(0, bounds(size)[1]) for size in x.shape])
    unknown: list[IntLike] = [Interval()] * count
    first, last, by = (unknown if d.ints is None else d.ints for d in (start, stop, step))
    items = slice_index(len(x.shape), first, last, by, axes)
    return x.with_shape([sliced_size(s, i) for s, i in zip(x.shape, items, strict=True)])


@operation("SliceScatter", since=15)
class SliceScatter(Op):
    """A copy of x in which the part that Slice would take is replaced by `updates`.

    Inputs:  x                  any shape and type
             updates            the shape of that part; type of x
             start, stop, step  1-D integer of one length
             axes               optional, of that length; 0, 1, … when left out
    Outputs: y                  shape and type of x
    Raises:  ShapeError when updates do not fit the part
    Source:  OpenVINO opset15 SliceScatter
    """

    strings_at = (0, 1)
    integers_at = (2, 3, 4, 5)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return shape and type of x."""
        self.check_count(inputs, 5, 6)
        x, updates = inputs[:2]
        part = sliced_desc(x, inputs[2:]).shape
        given = updates.shape
        if (
            part is not None
            and given is not None
            and part.is_static
            and given.is_static
            and part != given
        ):
            raise ShapeError(f"updates of shape {given} do not fit the selected part {part}")
        return [x.without_value()]
