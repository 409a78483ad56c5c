"""Layouts apart from one axis: how its positions, along all other axes, lie in memory."""

from __future__ import annotations

from polydevice_cpu.onednn.descriptor import channels_last_strides, row_major, same_steps

Shape = tuple[int, ...]


def sizes_apart(shape: Shape, axis: int | None) -> Shape:
    """The sizes of the axes of positions."""
    return shape if axis is None else (*shape[:axis], *shape[axis + 1 :])


def are_in_row(shape: Shape, strides: Shape, wanted: Shape) -> bool:
    """Whether elements lie where these strides would have them."""
    return strides == wanted or same_steps(shape, strides, wanted)


def dense(shape: Shape, strides: Shape) -> Shape | None:
    """The strides, if elements lie one behind the other, in whatever order of axes."""
    step = 1
    for wide, size in sorted(zip(strides, shape, strict=True)):
        if size > 1:
            if wide != step:
                return None
            step *= size
    return strides


def strides_apart(shape: Shape, axis: int | None) -> Shape:
    """Strides with positions one behind the other."""
    if len(shape) == 4 and axis == 1:  # as most are, which is told sooner
        _, channels, high, wide = shape
        return high * wide * channels, 1, wide * channels, channels
    if axis is None or axis == len(shape) - 1:
        return row_major(shape)
    return channels_last_strides(shape)


def unasked_strides_apart(shape: Shape, axis: int | None) -> Shape:
    """What `strides_apart` returns, without asking whether sizes are 1."""
    last = len(shape) - 1 if axis is None else axis
    order = [last, *(each for each in reversed(range(len(shape))) if each != last)]
    strides, step = {}, 1
    for each in order:
        strides[each] = step
        step *= shape[each]
    return tuple(strides[each] for each in range(len(shape)))
