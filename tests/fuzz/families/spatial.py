"""Convolutions, pooling, sampling: operators on images."""

from __future__ import annotations

import numpy as np

from tests.fuzz.builder import CHANNELS, Builder, RejectedError
from tests.fuzz.data import floats, image, integers, suited
from tests.fuzz.families import generates

AUTO = ("NOTSET", "NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


def window(b: Builder, sizes, pooling: bool = False) -> dict:
    """Return kernel_shape, strides, pads, dilations or auto_pad that leave something over."""
    kernel, strides, dilations, begins, ends = [], [], [], [], []
    for size in sizes:
        k = b.choice((1, 2, 3, 3, 4))
        d = 2 if b.chance(0.15) and k > 1 else 1
        reach = (k - 1) * d + 1
        most = min(k - 1, reach // 2) if pooling else reach - 1
        begin, end = (b.integer(0, most) if b.chance(0.4) else 0 for _ in range(2))
        if size + begin + end < reach:
            k, d, begin, end = 1, 1, 0, 0
        kernel.append(k)
        dilations.append(d)
        begins.append(begin)
        ends.append(end)
        strides.append(b.choice((1, 1, 2, 3)))
    made = {"kernel_shape": kernel, "strides": strides}
    auto = b.choice(AUTO) if not any(begins + ends) else "NOTSET"
    if auto == "NOTSET":
        made["pads"] = begins + ends
    else:
        made["auto_pad"] = auto
        if auto != "VALID":  # what "same" means with gaps between windows is disputed
            made["strides"] = [min(s, k) for s, k in zip(strides, kernel)]
        dilations = [1] * len(kernel)
    if any(d > 1 for d in dilations) or b.chance(0.1):
        made["dilations"] = dilations
    return made


@generates(6)
def convolution(b: Builder):
    """Conv in 1 to 3 dimensions, grouped, with all kinds of padding."""
    x = image(b, dtype=b.float_type())
    if 0 in x.shape:
        raise RejectedError("an empty image")
    c = x.shape[1]
    groups = b.choice([g for g in (1, 1, 1, 2, 3, 4, c) if c % g == 0])
    made = window(b, x.shape[2:])
    out = groups * b.choice((1, 1, 2, 3, 4, 16 // groups or 1, 24, 40))
    weights = b.fresh((out, c // groups, *made["kernel_shape"]), floats(x.dtype, -1, 1), 0.9)
    bias = b.fresh((out,), suited(x.dtype), 0.9) if b.chance(0.5) else None
    if b.chance(0.3):
        del made["kernel_shape"]
    return b.add("Conv", x, weights, bias, group=groups, **made)


@generates(4)
def transposed(b: Builder):
    """ConvTranspose, with output_padding and output_shape."""
    x = image(b, b.choice((1, 2, 2, 3)))
    if 0 in x.shape or max(x.shape) > 20:
        raise RejectedError("the wrong size")
    c = x.shape[1]
    groups = b.choice([g for g in (1, 1, 2, c) if c % g == 0])
    rank = x.rank - 2
    kernel = [b.integer(1, 3) for _ in range(rank)]
    strides = [b.integer(1, 3) for _ in range(rank)]
    weights = b.fresh((c, b.integer(1, 4), *kernel), floats(x.dtype, -1, 1), 0.9)
    made: dict = {"group": groups, "strides": strides}
    if b.chance(0.5):
        made["pads"] = [b.integer(0, k - 1) for k in kernel] * 2
    if b.chance(0.3):
        made["output_padding"] = [b.integer(0, s - 1) for s in strides]
    if b.chance(0.2):
        made["dilations"] = [b.integer(1, 2) for _ in kernel]
    bias = b.fresh((weights.shape[1] * groups,), suited(x.dtype)) if b.chance(0.4) else None
    return b.add("ConvTranspose", x, weights, bias, **made)


@generates(6)
def pooling(b: Builder):
    """MaxPool, AveragePool, LpPool and the global ones."""
    x = image(b, dtype=b.choice((np.dtype("f4"), np.dtype("f4"), b.float_type())))
    if 0 in x.shape:
        raise RejectedError("an empty image")
    name = b.choice(("MaxPool", "MaxPool", "AveragePool", "AveragePool", "LpPool",
                     "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"))  # fmt: skip
    if name.startswith("Global"):
        return b.add(name, x, p=b.integer(1, 3) if name == "GlobalLpPool" else None)
    made = window(b, x.shape[2:], pooling=True)
    since = {"MaxPool": 10, "AveragePool": 19, "LpPool": 18}[name]
    if b.opset < since:
        made.pop("dilations", None)
    if b.chance(0.3) and b.opset >= (10 if name != "LpPool" else 18):
        made["ceil_mode"] = 1
    if name == "AveragePool" and b.chance(0.4):
        made["count_include_pad"] = 1
    if name == "LpPool":
        made["p"] = b.integer(1, 3)
    if name == "MaxPool" and b.opset >= 8 and b.chance(0.2):
        return b.add(name, x, outputs=2, **made)
    return b.add(name, x, **made)


@generates(1)
def unpooling(b: Builder):
    """MaxUnpool behind the MaxPool it belongs to."""
    if b.opset < 11:
        raise RejectedError("MaxUnpool is generated from opset 11 on")
    x = b.fresh((b.integer(1, 2), b.integer(1, 3), 4, 6), suited(np.float32), 0)
    attributes = {"kernel_shape": [2, 2], "strides": [2, 2]}
    y, where = b.add("MaxPool", x, outputs=2, **attributes)
    return b.add("MaxUnpool", b.add("Abs", y), where, **attributes)


@generates(3)
def regions(b: Builder):
    """RoiAlign and MaxRoiPool."""
    x = b.fresh((b.integer(1, 3), b.choice(CHANNELS[:5]), b.integer(4, 9), b.integer(4, 9)),
                suited(np.float32), 0)  # fmt: skip
    count = b.integer(1, 4)

    def boxes(rng, shape):
        corners = rng.uniform(0, 5, (count, 2))
        return np.concatenate([corners, corners + rng.uniform(1, 5, (count, 2))], 1).astype("f4")

    size = {"spatial_scale": b.choice((1.0, 0.5))}
    if b.opset < 10 or b.chance(0.2):

        def with_batch(rng, shape):
            batch = rng.integers(0, x.shape[0], (count, 1))
            return np.concatenate([batch, boxes(rng, shape).round()], 1).astype("f4")

        rois = b.fresh((count, 5), with_batch)
        return b.add("MaxRoiPool", x, rois, pooled_shape=[2, 3], **size)
    if b.opset >= 16:
        size["coordinate_transformation_mode"] = b.choice(("half_pixel", "output_half_pixel"))
    batch = b.fresh((count,), integers(np.int64, 0, x.shape[0] - 1))
    return b.add("RoiAlign", x, b.fresh((count, 4), boxes), batch, mode="avg",
                 output_height=b.integer(1, 3), output_width=b.integer(1, 3),
                 sampling_ratio=b.choice((0, 1, 2)), **size)  # fmt: skip


@generates(3)
def sampling(b: Builder):
    """GridSample and AffineGrid."""
    if b.opset < 16:
        raise RejectedError("GridSample came with opset 16")
    n, c, h, w = b.integer(1, 2), b.integer(1, 3), b.integer(1, 5), b.integer(1, 5)
    x = b.fresh((n, c, h, w), suited(np.float32), 0.1)
    align = b.integer(0, 1)
    if b.opset >= 20 and b.chance(0.4):
        theta = b.fresh((n, 2, 3), floats(np.dtype("f4"), -1, 1))
        size = b.constant(np.array([n, c, b.integer(1, 4), b.integer(1, 4)]))
        grid = b.add("AffineGrid", theta, size, align_corners=align)
    else:
        grid = b.fresh((n, b.integer(1, 4), b.integer(1, 4), 2), floats(np.dtype("f4"), -1.3, 1.3))
    modes = ("linear", "nearest", "cubic") if b.opset >= 20 else ("bilinear", "nearest", "bicubic")
    padding = b.choice(("zeros", "border", "reflection"))
    return b.add("GridSample", x, grid, mode=b.choice(modes), padding_mode=padding,
                 align_corners=align)  # fmt: skip


@generates(2)
def deformable(b: Builder):
    """DeformConv."""
    if b.opset < 19:
        raise RejectedError("DeformConv came with opset 19")
    n, c, h, w = b.integer(1, 2), b.choice((1, 2, 4)), b.integer(3, 6), b.integer(3, 6)
    kernel = b.integer(1, 3)
    x = b.fresh((n, c, h, w), suited(np.float32), 0)
    weights = b.fresh((b.integer(1, 4), c, kernel, kernel), floats(np.dtype("f4"), -1, 1), 0.9)
    places = (h - kernel + 1, w - kernel + 1)
    offsets = b.fresh((n, 2 * kernel**2, *places), floats(np.dtype("f4"), -1, 1), 0.3)
    mask = b.fresh((n, kernel**2, *places), floats(np.dtype("f4"), 0, 1)) if b.chance(0.4) else None
    bias = b.fresh((weights.shape[0],), suited(np.float32)) if b.chance(0.4) else None
    return b.add("DeformConv", x, weights, offsets, bias, mask, kernel_shape=[kernel, kernel],
                 pads=[0] * 4)  # fmt: skip
