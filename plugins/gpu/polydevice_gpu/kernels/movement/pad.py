"""Pad: a border of constants, of the nearest elements, or of mirrored ones."""

from __future__ import annotations

import math

from polydevice.ops.pad import Pad, PadMode
from polydevice.symbolic_size import is_symbolic
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.kernel import Mode, SingleLaunch, kernel
from polydevice_gpu.kernels.reason import unless
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.views import integers

_MAPS = {
    # Position i - begin in an axis of n elements; constant ones are checked by INSIDE.
    PadMode.CONSTANT: "(i)",
    PadMode.EDGE: "clamp(i, 0, (n) - 1)",
    PadMode.REFLECT: "((i) < 0 ? -(i) : (i) >= (n) ? 2 * (n) - 2 - (i) : (i))",
    PadMode.SYMMETRIC: "((i) < 0 ? -1 - (i) : (i) >= (n) ? 2 * (n) - 1 - (i) : (i))",
    PadMode.WRAP: "((i) < 0 ? (n) - 1 - (-1 - (i)) % (n) : (i) % (n))",
}


@kernel(Pad)
class PadRef(SingleLaunch):
    """One work-item fetches one element of the result."""

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Pads must be known."""
        known = all(value.constant is not None for value in node.inputs[1:3])
        return unless((known, "its pads are not known ahead"))

    def describe(self, call: Call, op: Pad, mode: Mode) -> None:
        """Map every coordinate into the input."""
        node = call.node
        x, out = node.inputs[0], node.output
        begin = integers(node, 1)
        call.tensor("IN0", x)
        call.define(**{"MAP(i, n)": _MAPS[op.pad_mode]})
        call.unravel("UNRAVEL", "o", out.shape)
        lines, inside = [], ["1"]
        for axis in range(x.rank):
            size = x.shape[axis]
            near = _near(op.pad_mode, begin[axis], size, out.shape[axis])
            call.scalars(**{f"BEGIN_{axis}": near, f"SIZE_{axis}": size})
            lines.append(f"const int s{axis} = MAP(o{axis} - BEGIN_{axis}, SIZE_{axis});")
            if op.pad_mode is PadMode.CONSTANT:
                inside.append(f"s{axis} >= 0 && s{axis} < SIZE_{axis}")
        names = ", ".join(f"s{axis}" for axis in range(x.rank))
        call.define(SOURCE=" ".join(lines), INSIDE=" && ".join(inside))
        call.define(ELEMENT=f"IN0_LOAD(IN0_AT({names}))")
        value = node.inputs[3] if len(node.own_inputs) > 3 else None
        if op.pad_mode is PadMode.CONSTANT and value is not None:
            call.pointer("IN1", value)
            call.access("IN1", value.storage)
            call.define(BORDER=f"IN1_LOAD({value.placed.offset})")
        else:
            call.define(BORDER=0)
        total = math.prod(out.shape)
        call.scalars(COUNT=total)
        call.result([tuple(range(out.rank))])
        call.dispatch((total,))


def _near(mode: PadMode, begin: int, size: int, padded: int) -> int:
    """Return what does the same as a pad and fits an int; another pad may cancel it out."""
    if any(map(is_symbolic, (begin, size, padded))):
        return begin
    if mode is PadMode.WRAP:
        return begin % max(size, 1)
    if mode in (PadMode.CONSTANT, PadMode.EDGE):  # border alone from there on
        return max(-size, min(begin, padded))
    return begin  # no wider than the axis, as the one after it
