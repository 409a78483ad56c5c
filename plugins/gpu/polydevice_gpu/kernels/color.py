"""NV12 and I420 frames to RGB and BGR images."""

from __future__ import annotations

from polydevice.ops.color import FromYuv, I420toBGR, I420toRGB, NV12toBGR, NV12toRGB
from polydevice_gpu.kernels.kernel import Kernel, Mode, kernel
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.types import compute_type

_EACH = [(0,), (1,), (2,), (3,)]


@kernel(NV12toRGB, NV12toBGR, I420toRGB, I420toBGR)
class FromYuvRef(Kernel):
    """One work-item computes one channel of one pixel."""

    def describe(self, call: Call, mode: Mode) -> None:
        """Say where a pixel's U and V are: in the one input, or in planes of their own."""
        node = call.node
        op, out = node.op, node.output
        assert isinstance(op, FromYuv)
        planes = node.own_inputs
        for index, plane in enumerate(planes):
            call.tensor(f"IN{index}", plane, _EACH)
        batch, height, width, channels = out.shape
        call.scalars(HEIGHT=height, WIDTH=width)
        call.define(**{f"{name}(n, h, w)": text for name, text in _chroma(op, len(planes))})
        call.define(BLUE_FIRST=op.bgr)
        kind = compute_type(planes[0].storage)
        call.define(INTEGER=kind not in ("float", "double"))
        call.define(**{"STORED(v)": f"convert_{kind}_sat(v)"})
        call.result(_EACH)
        call.dispatch((width * channels, height, batch))


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
