"""Resample: every kind of interpolation, by tables of elements and weights."""

from __future__ import annotations

import math

from polydevice.dtype import ElementType
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.kernel import Mode, SingleLaunch, kernel
from polydevice_gpu.kernels.reason import unless
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.kernels.types import compute_type
from polydevice_gpu.ops import Resample


@kernel(Resample)
class ResampleRef(SingleLaunch):
    """One work-item computes one element; up to three axes at once."""

    def refuses(self, node: GpuNode, target: Target) -> str:
        """The kernel has three table slots."""
        axes = node.operation(Resample).axes
        return unless((len(axes) <= 3, "it has more than three axes"))

    def describe(self, call: Call, op: Resample, mode: Mode) -> None:
        """Sum over the taps of up to three axes, the others being one coordinate."""
        node = call.node
        x, out = node.inputs[0], node.output
        kept = tuple(axis for axis in range(x.rank) if axis not in op.axes)
        missing = 3 - len(op.axes)
        groups: list[tuple[int, ...]] = [*[()] * missing, *[(axis,) for axis in op.axes], kept]
        call.tensor("IN0", x, groups)
        sizes = []
        for slot in range(3):
            place = slot - missing
            if place < 0:
                sizes.append(1)
                call.define(**{f"TAPS_{slot}": 1})
                call.define(**{f"INDEX_{slot}(o, t)": 0, f"WEIGHT_{slot}(o, t)": "1.0f"})
                continue
            index, weight = node.inputs[1 + 2 * place], node.inputs[2 + 2 * place]
            roles = f"IN{1 + 2 * place}", f"IN{2 + 2 * place}"
            call.tensor(roles[0], index)
            call.tensor(roles[1], weight)
            # Few taps are worth unrolling; many (antialiasing) are not.
            taps = {f"TAPS_{slot}": index.shape[1]}
            if index.shape[1] <= 4:
                call.define(**taps)
            else:
                call.scalars(**taps)
            call.define(**{
                f"INDEX_{slot}(o, t)": f"{roles[0]}_LOAD({roles[0]}_AT(o, t))",
                f"WEIGHT_{slot}(o, t)": f"{roles[1]}_LOAD({roles[1]}_AT(o, t))",
            })  # fmt: skip
            sizes.append(index.shape[0])
        kind = compute_type(x.storage)
        wide = node.inputs[2].storage is ElementType.f64 or kind == "double"
        call.define(SUM="double" if wide else "float", INTEGER=kind not in _FLOATS)
        call.define(**{"ROUNDED(v)": "round(v)" if op.half_away else "rint(v)"})
        rest = math.prod(out.shape[axis] for axis in kept)
        call.scalars(OUT_0=sizes[0], OUT_1=sizes[1], OUT_2=sizes[2], REST=rest)
        if kind not in _FLOATS:
            call.define(SATURATE=f"convert_{kind}_sat")
        call.result(groups)
        inner = x.placed.order(x.shape)[-1] in kept
        call.define(REST_INSIDE=inner)
        if inner:
            call.dispatch((rest, sizes[2], sizes[1] * sizes[0]))
        else:
            call.dispatch((sizes[2], sizes[1] * sizes[0], rest))


_FLOATS = ("float", "double")
