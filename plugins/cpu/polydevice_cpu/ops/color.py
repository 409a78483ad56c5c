"""NV12toRGB, NV12toBGR, I420toRGB and I420toBGR."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.color import FromYuv
from polydevice_cpu.implement import implements


@implements(FromYuv)
def from_yuv(op: FromYuv, y: Array, *chroma: Array) -> Array:
    """Bring U and V to the image's size and convert (BT.601)."""
    if not chroma:
        y, chroma = _planes(op, y)
    interleaved = len(chroma) == 1
    u = chroma[0][..., 0]
    v = chroma[0][..., 1] if interleaved else chroma[1][..., 0]
    real = np.float64 if y.dtype == np.float64 else np.float32
    luma = (y[..., 0].astype(real) - 16) * real(1.164)
    u, v = (p.astype(real).repeat(2, axis=1).repeat(2, axis=2) - 128 for p in (u, v))
    red = luma + real(1.596) * v
    green = luma - real(0.391) * u - real(0.813) * v
    blue = luma + real(2.018) * u
    image = np.stack([blue, green, red] if op.bgr else [red, green, blue], axis=-1)
    image = np.clip(image, 0, 255)
    rounded: Array = np.floor(image + 0.5) if y.dtype.kind in "iu" else image
    return rounded.astype(y.dtype)


def _planes(op: FromYuv, x: Array) -> tuple[Array, tuple[Array, ...]]:
    """Cut one array [N, H × 3/2, W, 1] into its planes."""
    batch, rows, width, _ = x.shape
    height = rows * 2 // 3
    rest = x[:, height:].reshape(batch, -1)
    if op.planes == 2:
        return x[:, :height], (rest.reshape(batch, height // 2, width // 2, 2),)
    half = rest.shape[1] // 2
    shape = (batch, height // 2, width // 2, 1)
    return x[:, :height], (rest[:, :half].reshape(shape), rest[:, half:].reshape(shape))
