"""Operators that move, repeat or select elements."""

from __future__ import annotations

import numpy as np

from tests.fuzz.builder import Builder, RejectedError, Tensor
from tests.fuzz.data import booleans, image, integers, some, suited
from tests.fuzz.families import generates


def anything(b: Builder, rank: int | None = None, least_rank: int = 0) -> Tensor:
    """Return a value of any type."""
    found = b.find(
        lambda t: t.rank >= least_rank, lambda t: rank is None or t.rank == rank
    ) if b.chance(0.75) else None  # fmt: skip
    if found is not None:
        return found
    kind = b.choice(("f4", "f4", "f4", "f4", "f2", "f8", "?", "i4", "i8", "u1", "i1", "O"))
    rank = max(least_rank, b.integer(0, 5)) if rank is None else rank
    return b.fresh(b.shape(rank), suited(np.dtype(kind)), 0.1)


def indices(b: Builder, values, dtype=np.int64) -> Tensor:
    """Return small integers as a constant, or now and then as an input of just this value."""
    array = np.asarray(values, dtype)
    if b.chance(0.2):
        return b.input(array.shape, lambda rng, shape: array.copy(), array)
    return b.constant(array)


def with_axes(b: Builder, operator: str, x, axes: list[int], since: int):
    """Add an operator whose axes are an attribute, or from an opset on an input."""
    if b.opset < 11:
        axes = sorted(a % max(x.rank, 1) for a in axes)
    if b.opset >= since:
        return b.add(operator, x, indices(b, axes))
    return b.add(operator, x, axes=axes)


@generates(4)
def reshape(b: Builder):
    """Reshape with -1, 0 and allowzero; Flatten."""
    x = anything(b)
    if b.chance(0.25):
        axis = b.integer(0, x.rank) if b.opset < 11 else b.integer(-x.rank, x.rank)
        return b.add("Flatten", x, axis=axis)
    total = int(np.prod(x.shape, dtype=np.int64))
    sizes: list[int] = []
    left = total
    for _ in range(b.integer(0, 4)):
        factors = [f for f in (1, 2, 3, 4, 5, 7, 8, 16) if left and left % f == 0] or [left or 1]
        sizes.append(b.choice(factors))
        left //= sizes[-1] or 1
    sizes.append(left)
    sizes = [int(s) for s in b.rng.permutation(sizes)] if b.chance(0.5) else sizes
    if total and b.chance(0.5):
        sizes[b.integer(0, len(sizes) - 1)] = -1
    elif total:
        sizes = [0 if i < x.rank and x.shape[i] == s and b.chance(0.5) else s
                 for i, s in enumerate(sizes)]  # fmt: skip
    allow = 1 if b.opset >= 14 and not total else None
    return b.add("Reshape", x, indices(b, sizes), allowzero=allow)


@generates(3)
def squeeze(b: Builder):
    """Squeeze and Unsqueeze."""
    x = anything(b)
    if b.chance(0.5):
        ones = [i for i, s in enumerate(x.shape) if s == 1]
        if not ones:
            raise RejectedError("no axis of size 1")
        if b.chance(0.2):
            return b.add("Squeeze", x)
        return with_axes(b, "Squeeze", x, [a for a in ones if b.chance(0.7)] or ones[:1], 13)
    if x.rank > 4:
        raise RejectedError("rank grows too large")
    count = b.integer(1, 2)
    places = sorted(int(a) for a in b.rng.permutation(x.rank + count)[:count])
    if b.opset >= 11 and b.chance(0.3):
        places = [p - x.rank - count for p in places]
    if b.opset >= 13:
        return b.add("Unsqueeze", x, indices(b, places))
    return b.add("Unsqueeze", x, axes=places)


@generates(4)
def transpose(b: Builder):
    """Transpose, with or without perm."""
    x = anything(b)
    perm = [int(a) for a in b.rng.permutation(x.rank)] if b.chance(0.9) else None
    return b.add("Transpose", x, perm=perm if x.rank else None)


@generates(4)
def concat(b: Builder):
    """Concat of one to four values."""
    x = anything(b, least_rank=1)
    axis = b.integer(0, x.rank - 1)
    parts = [x]
    for _ in range(b.integer(0, 3)):
        other = b.find(lambda t: t.dtype == x.dtype and t.rank == x.rank and all(
            s == o for i, (s, o) in enumerate(zip(t.shape, x.shape)) if i != axis))  # fmt: skip
        if other is None or b.chance(0.4):
            shape = tuple(b.size() if i == axis else s for i, s in enumerate(x.shape))
            other = b.fresh(shape, suited(x.dtype), 0.5)
        parts.insert(b.integer(0, len(parts)), other)
    return b.add("Concat", *parts, axis=axis - x.rank if b.opset >= 11 and b.chance(0.3) else axis)


@generates(4)
def split(b: Builder):
    """Split, in equal or given parts."""
    x = anything(b, least_rank=1)
    axis = b.integer(0, x.rank - 1)
    size = x.shape[axis]
    count = b.integer(1, 4)
    at = axis - x.rank if b.opset >= 11 and b.chance(0.3) else axis
    if b.chance(0.4):
        if b.opset >= 18:
            return b.add("Split", x, outputs=count, axis=at, num_outputs=count)
        if size % count:
            raise RejectedError("parts are not equal")
        return b.add("Split", x, outputs=count, axis=at)
    cuts = sorted(b.integer(0, size) for _ in range(count - 1))
    parts = [int(p) for p in np.diff([0, *cuts, size])]
    if b.opset >= 13:
        return b.add("Split", x, indices(b, parts), outputs=count, axis=at)
    return b.add("Split", x, outputs=count, axis=at, split=parts)


@generates(5)
def slice_(b: Builder):
    """Slice with steps of either sign, bounds out of range, empty results."""
    x = anything(b, least_rank=1)
    chosen = sorted(int(a) for a in b.rng.permutation(x.rank)[: b.integer(1, x.rank)])
    starts, ends, steps = [], [], []
    for axis in chosen:
        size = x.shape[axis]
        step = b.choice((1, 1, 1, 2, 3, -1, -2)) if b.opset >= 10 else 1
        low, high = sorted((b.integer(-size - 1, size + 1), b.integer(-size - 1, size + 1)))
        if b.chance(0.6):
            low, high = b.integer(0, max(size - 1, 0)), b.choice((size, 2**31 - 1, 2**62))
        if step < 0:
            low, high = b.choice((size - 1, -1, 2**31 - 1)), b.choice((0, -size - 1, -(2**62)))
        starts.append(low)
        ends.append(high)
        steps.append(step)
    if b.opset < 10:
        return b.add("Slice", x, axes=chosen, starts=starts, ends=ends)
    kind = b.choice((np.int64, np.int64, np.int32))
    starts, ends = (np.clip(v, -(2**31), 2**31 - 1) if kind is np.int32 else v
                    for v in (starts, ends))  # fmt: skip
    axes = [a - x.rank if b.opset >= 11 and b.chance(0.3) else a for a in chosen]
    return b.add("Slice", x, *(indices(b, v, kind) for v in (starts, ends, axes, steps)))


@generates(4)
def gather(b: Builder):
    """Gather, GatherElements, GatherND."""
    x = anything(b, least_rank=1)
    axis = b.integer(0, x.rank - 1)
    size = x.shape[axis]
    if not size:
        raise RejectedError("nothing to choose from")
    kind = b.choice((np.dtype("i8"), np.dtype("i4")))
    low = -size if b.opset >= 11 else 0
    name = (
        b.choice(("Gather", "Gather", "GatherElements", "GatherND")) if b.opset >= 11 else "Gather"
    )
    if name == "GatherND":
        depth = b.integer(1, x.rank)
        shape = b.shape(b.integer(0, 2))
        columns = [b.rng.integers(-s, max(s, 1), shape) if s else np.zeros(shape)
                   for s in x.shape[:depth]]  # fmt: skip
        if not all(x.shape[:depth]):
            raise RejectedError("nothing to choose from")
        return b.add(name, x, indices(b, np.stack(columns, -1)))
    if name == "GatherElements":
        shape = tuple(b.integer(1, s) if i != axis and s else max(s, 1)
                      for i, s in enumerate(x.shape))  # fmt: skip
        if 0 in x.shape:
            raise RejectedError("nothing to choose from")
    else:
        shape = b.shape(b.integer(0, 2))
    where = b.fresh(shape, integers(kind, low, size - 1), 0.5)
    return b.add(name, x, where, axis=axis - x.rank if b.opset >= 11 and b.chance(0.3) else axis)


@generates(4)
def scatter(b: Builder):
    """ScatterElements, ScatterND, Scatter, TensorScatter; every place is written once."""
    if b.opset < 11:
        raise RejectedError("scattering is generated from opset 11 on")
    x = anything(b, least_rank=1)
    if 0 in x.shape:
        raise RejectedError("nowhere to write")
    axis = b.integer(0, x.rank - 1)
    reduction = "none"
    if b.opset >= 16 and x.dtype.kind == "f" and b.chance(0.4):
        reduction = b.choice(("add", "mul") if b.opset < 18 else ("add", "mul", "max", "min"))
    attributes = {"reduction": reduction} if b.opset >= 16 else {}
    if b.chance(0.5):
        rows = b.integer(1, x.shape[0])
        places = b.rng.permutation(x.shape[0])[:rows, None]
        updates = b.fresh((rows, *x.shape[1:]), suited(x.dtype))
        return b.add("ScatterND", x, indices(b, places), updates, **attributes)
    count = b.integer(1, x.shape[axis])
    shape = tuple(count if i == axis else s for i, s in enumerate(x.shape))
    order = np.argsort(b.rng.random(x.shape), axis)
    places = np.take(order, range(count), axis)
    return b.add(
        "ScatterElements", x, indices(b, places), b.fresh(shape, suited(x.dtype)), axis=axis,
        **attributes,
    )  # fmt: skip


@generates(4)
def pad(b: Builder):
    """Pad in all modes, and cropping by negative pads."""
    x = some(b) if b.opset < 11 or b.chance(0.7) else anything(b, least_rank=1)
    if not x.rank or x.dtype.kind == "O":
        raise RejectedError("nothing to pad")
    mode = b.choice(("constant", "constant", "edge", "reflect", "wrap"))
    if (mode == "wrap" and b.opset < 19) or (mode != "constant" and 0 in x.shape):
        mode = "constant"
    most = [max(s - 1, 0) if mode in ("reflect", "wrap") else 3 for s in x.shape] * 2
    pads = [b.integer(0, min(m, 3)) if b.chance(0.6) else 0 for m in most]
    if mode == "constant" and b.chance(0.15):
        pads = [-1 if s > 2 and b.chance(0.5) else p for s, p in zip(x.shape * 2, pads)]
    if b.opset < 11:
        return b.add("Pad", x, pads=pads, mode=mode, value=1.5)
    value = b.constant(np.ones((), x.dtype)) if b.chance(0.5) else None
    if b.opset >= 18 and b.chance(0.3):
        axis = b.integer(0, x.rank - 1)
        pair = [pads[axis], pads[axis + x.rank]]
        return b.add("Pad", x, indices(b, pair), value, indices(b, [axis - x.rank]), mode=mode)
    return b.add("Pad", x, indices(b, pads), value, mode=mode)


@generates(3)
def repeat(b: Builder):
    """Tile and Expand."""
    x = anything(b)
    if b.chance(0.5):
        return b.add("Tile", x, indices(b, [b.choice((1, 1, 2, 3)) for _ in x.shape]))
    if b.opset < 8:
        raise RejectedError("Expand came with opset 8")
    shape = [b.choice((1, 2, 3)) if s == 1 else b.choice((s, 1)) for s in x.shape]
    shape = [b.choice((1, 2)) for _ in range(b.choice((0, 0, 1)))] + shape
    return b.add("Expand", x, indices(b, shape))


@generates(3)
def blocks(b: Builder):
    """DepthToSpace and SpaceToDepth."""
    size = b.choice((1, 2, 2, 3))
    n, c, h, w = b.integer(1, 2), b.integer(1, 3), b.integer(1, 4), b.integer(1, 4)
    if b.chance(0.5):
        x = b.fresh((n, c * size**2, h, w), suited(np.float32), 0)
        mode = b.choice(("DCR", "CRD")) if b.opset >= 11 else None
        return b.add("DepthToSpace", x, blocksize=size, mode=mode)
    return b.add("SpaceToDepth", b.fresh((n, c, h * size, w * size), suited(np.float32), 0),
                 blocksize=size)  # fmt: skip


@generates(2)
def triangle(b: Builder):
    """Trilu."""
    if b.opset < 14:
        raise RejectedError("Trilu came with opset 14")
    x = anything(b, least_rank=2)
    k = indices(b, b.integer(-3, 3)) if b.chance(0.6) else None
    return b.add("Trilu", x, k, upper=b.integer(0, 1))


@generates(2)
def reverse(b: Builder):
    """ReverseSequence."""
    if b.opset < 10:
        raise RejectedError("ReverseSequence came with opset 10")
    x = anything(b, least_rank=2)
    time = b.integer(0, 1)
    if not x.shape[time]:
        raise RejectedError("no time")
    lengths = b.fresh((x.shape[1 - time],), integers(np.int64, 1, x.shape[time]))
    return b.add("ReverseSequence", x, lengths, time_axis=time, batch_axis=1 - time)


@generates(2)
def compress(b: Builder):
    """Compress, along an axis or of all elements."""
    if b.opset < 9:
        raise RejectedError("Compress came with opset 9")
    x = anything(b, least_rank=1)
    axis = b.integer(0, x.rank - 1) if b.chance(0.7) else None
    size = x.shape[axis] if axis is not None else int(np.prod(x.shape))
    condition = b.fresh((b.integer(min(1, size), size),), booleans)
    return b.add("Compress", x, condition, axis=axis)


@generates(3)
def one_hot(b: Builder):
    """OneHot and EyeLike."""
    if b.opset < 9:
        raise RejectedError("OneHot came with opset 9")
    if b.chance(0.4):
        x = b.fresh(b.shape(2), suited(b.choice(("f4", "i4"))))
        return b.add("EyeLike", x, k=b.integer(-2, 2), dtype=b.choice((None, 1, 6, 7)))
    depth = b.integer(1, 5)
    low = -depth if b.opset >= 11 else 0
    where = b.fresh(b.shape(b.integer(0, 3)), integers(b.choice(("i8", "i4")), low, depth))
    values = b.constant(np.array([0, 1], b.choice(("f4", "i4", "i8"))))
    depth_tensor = indices(b, [depth] if b.chance(0.5) else depth)
    return b.add("OneHot", where, depth_tensor, values, axis=b.integer(-1, where.rank))


@generates(5)
def resize(b: Builder):
    """Resize, and Upsample before opset 10."""
    x = image(b, b.choice((1, 2, 2, 3)), least=1)
    if 0 in x.shape:
        raise RejectedError("an empty image")
    mode = (
        b.choice(("nearest", "linear", "cubic")) if x.rank == 4 else b.choice(("nearest", "linear"))
    )
    factors = [1.0, 1.0, *(b.choice((1.0, 2.0, 0.5, 1.5, 3.0, 0.7)) for _ in x.shape[2:])]
    if b.opset < 11:
        mode, factors = b.choice(("nearest", "linear")), [max(f, 1.0) for f in factors]
        if b.opset < 9:
            return b.add("Upsample", x, mode=mode, scales=factors)
        name = "Upsample" if b.opset < 10 else "Resize"
        return b.add(name, x, np.float32(factors), mode=mode)
    way = b.choice(("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"))
    attributes = {"mode": mode, "coordinate_transformation_mode": way}
    if mode == "nearest":
        attributes["nearest_mode"] = b.choice(
            ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
        )
    if mode == "cubic":
        attributes |= {"cubic_coeff_a": -0.5, "exclude_outside": b.integer(0, 1)}
    if b.opset >= 18 and mode != "nearest" and b.chance(0.2):
        attributes["antialias"] = 1
    empty = b.constant(np.zeros(0, np.float32)) if b.opset < 13 else None
    if b.chance(0.5):
        return b.add("Resize", x, empty, indices(b, factors, np.float32), **attributes)
    sizes = [max(1, int(s * f)) for s, f in zip(x.shape, factors)]
    return b.add("Resize", x, empty, b.constant(np.zeros(0, np.float32)) if empty else None,
                 indices(b, sizes), **attributes)  # fmt: skip


@generates(3)
def about_shapes(b: Builder):
    """Shape and Size, and arithmetic on them: what exporters write for unknown sizes."""
    x = anything(b)
    if b.chance(0.3):
        return b.add("Size", x)
    ends = {}
    if b.opset >= 15 and b.chance(0.4):
        ends = {"start": b.integer(-x.rank - 1, x.rank), "end": b.integer(-x.rank - 1, x.rank)}
    sizes = b.add("Shape", x, **ends)
    if b.chance(0.5):
        return b.add(
            b.choice(("Add", "Mul", "Sub", "Max", "Min")), sizes, np.int64(b.integer(-2, 3))
        )
    return sizes


@generates(2)
def reshape_by_shape(b: Builder):
    """Reshape, Expand or ConstantOfShape by what Shape, Gather and Concat say."""
    x = anything(b, least_rank=1)
    sizes = b.add("Shape", x)
    what = b.choice(("Reshape", "Expand", "ConstantOfShape"))
    if what == "ConstantOfShape" and b.opset >= 9:
        return b.add(what, sizes)
    if what == "Expand" and b.opset >= 8:
        return b.add(what, b.constant(np.ones((1,), np.float32)), sizes)
    first = b.add("Gather", sizes, np.array([0]))
    return b.add("Reshape", x, b.add("Concat", first, np.array([-1]), axis=0))


@generates(2)
def crop_or_pad(b: Builder):
    """CenterCropPad."""
    if b.opset < 18:
        raise RejectedError("CenterCropPad came with opset 18")
    x = anything(b, least_rank=1)
    axes = sorted(int(a) for a in b.rng.permutation(x.rank)[: b.integer(1, x.rank)])
    return b.add("CenterCropPad", x, indices(b, [b.integer(1, 6) for _ in axes]), axes=axes)


@generates(2)
def columns(b: Builder):
    """Col2Im."""
    if b.opset < 18:
        raise RejectedError("Col2Im came with opset 18")
    h, w = b.integer(2, 5), b.integer(2, 5)
    kh, kw = b.integer(1, h), b.integer(1, w)
    channels = b.choice((1, 2, 3))
    x = b.fresh((b.integer(1, 2), channels * kh * kw, (h - kh + 1) * (w - kw + 1)),
                suited(np.float32))  # fmt: skip
    return b.add("Col2Im", x, indices(b, [h, w]), indices(b, [kh, kw]))


@generates(1)
def cache_update(b: Builder):
    """TensorScatter."""
    if b.opset < 24:
        raise RejectedError("TensorScatter came with opset 24")
    n, length, new = b.integer(1, 3), b.integer(2, 6), b.integer(1, 2)
    past = b.fresh((n, 2, length, 3), suited(np.float32))
    update = b.fresh((n, 2, new, 3), suited(np.float32))
    where = b.fresh((n,), integers(np.int64, 0, length - new))
    return b.add("TensorScatter", past, update, where, mode=b.choice(("linear", "circular")))
