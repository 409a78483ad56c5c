"""NV12 and I420 frames to RGB and BGR images, in the frame's size or resized."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.ops.color import FromYuv, I420toBGR, I420toRGB, NV12toBGR, NV12toRGB
from polydevice_gpu.graph import Value
from polydevice_gpu.kernels.kernel import Mode, SingleLaunch, kernel
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.types import compute_type
from polydevice_gpu.ops import ResampleYuv

_EACH = [(0,), (1,), (2,), (3,)]


@kernel(NV12toRGB, NV12toBGR, I420toRGB, I420toBGR)
class FromYuvRef(SingleLaunch):
    """One work-item computes one channel of one pixel."""

    def describe(self, call: Call, op: FromYuv, mode: Mode) -> None:
        """Say where a pixel's U and V are: in the one input, or in planes of their own."""
        node = call.node
        out = node.output
        batch, height, width, channels = out.shape
        _declare_frame(call, op, node.own_inputs, height, width)
        kind = compute_type(node.inputs[0].storage)
        call.define(INTEGER=kind not in ("float", "double"))
        call.define(**{"STORED(v)": f"convert_{kind}_sat(v)"})
        call.result(_EACH)
        call.dispatch((width * channels, height, batch))


@kernel(ResampleYuv)
class ResampleYuvRef(SingleLaunch):
    """One work-item computes all channels of one pixel of the result."""

    def describe(self, call: Call, op: ResampleYuv, mode: Mode) -> None:
        """Sum over the taps of rows and columns what the frame's pixels are in colour."""
        node = call.node
        out = node.output
        planes, tables = node.own_inputs[:-4], node.own_inputs[-4:]
        height = planes[0].shape[1] * 2 // 3 if len(planes) == 1 else planes[0].shape[1]
        _declare_frame(call, op.colors, planes, height, planes[0].shape[2])
        call.define(ROUNDED=compute_type(planes[0].storage) not in ("float", "double"))
        for place, axis in enumerate(("ROW", "COLUMN")):
            index, weight = tables[2 * place : 2 * place + 2]
            call.tensor(f"{axis}_INDEX", index)
            call.tensor(f"{axis}_WEIGHT", weight)
            call.define(**{f"{axis}_TAPS": index.shape[1]})
        call.result(_EACH)
        batch, _, rows, columns = out.shape
        call.dispatch((columns, rows, batch))


def _declare_frame(
    call: Call, op: FromYuv, planes: Sequence[Value], height: int, width: int
) -> None:
    """Declare the planes as IN0…, where a pixel's U and V are, and the colours they make."""
    for index, plane in enumerate(planes):
        call.tensor(f"IN{index}", plane, _EACH)
    call.scalars(HEIGHT=height, WIDTH=width)
    call.define(**{f"{name}(n, h, w)": text for name, text in _chroma(op, len(planes))})
    call.define(BLUE_FIRST=op.bgr)
    call.define(**_COLORS)


# BT.601, 16 to 235; y, u and v are floats.
_COLORS = {
    "RED(y, u, v)": "clamp(1.164f * ((y) - 16.0f) + 1.596f * ((v) - 128.0f), 0.0f, 255.0f)",
    "GREEN(y, u, v)": (
        "clamp(1.164f * ((y) - 16.0f) - 0.391f * ((u) - 128.0f) - 0.813f * ((v) - 128.0f), "
        "0.0f, 255.0f)"
    ),
    "BLUE(y, u, v)": "clamp(1.164f * ((y) - 16.0f) + 2.018f * ((u) - 128.0f), 0.0f, 255.0f)",
}


def _chroma(op: FromYuv, planes: int) -> list[tuple[str, str]]:
    """Return the expressions of U and V of the 2 × 2 pixels around (h, w)."""
    if planes == 2:
        at = "IN1_LOAD(IN1_AT(n, (h) / 2, (w) / 2, {}))"
        return [("U", at.format(0)), ("V", at.format(1))]
    if planes == 3:
        return [
            (u, f"IN{i}_LOAD(IN{i}_AT(n, (h) / 2, (w) / 2, 0))") for u, i in (("U", 1), ("V", 2))
        ]
    if op.planes == 2:
        at = "IN0_LOAD(IN0_AT(n, HEIGHT + (h) / 2, ((w) & ~1) + {}, 0))"
        return [("U", at.format(0)), ("V", at.format(1))]
    # All of U, then all of V, in rows as long as those of Y.
    place = "((h) / 2 * (WIDTH / 2) + (w) / 2 + {} * (HEIGHT / 2) * (WIDTH / 2))"
    at = "IN0_LOAD(IN0_AT(n, HEIGHT + {0} / WIDTH, {0} % WIDTH, 0))"
    return [("U", at.format(place.format(0))), ("V", at.format(place.format(1)))]
