"""Convolutions of images of floats, of which bytes are made where they are read."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.dtype import ElementType
from polydevice_gpu.kernels.addressing import Groups, spread
from polydevice_gpu.kernels.gemm.convolution_shape import convolution_geometry, pixel_groups
from polydevice_gpu.kernels.gemm.image_bytes_mma import ConvolutionImageBytesMma
from polydevice_gpu.kernels.geometry import spatial
from polydevice_gpu.kernels.kernel import kernel
from polydevice_gpu.kernels.pointwise.fragment import (
    ROUNDED_DIVISIONS,
    Operand,
    function,
    needs_rounding,
)
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.ops import QuantisedConvolution


@kernel(QuantisedConvolution)
class ConvolutionImageFloatsMma(ConvolutionImageBytesMma):
    """As of bytes, which it makes of floats on the way to local memory: a launch less."""

    def declare(self, call: Call, widths: Sequence[int]) -> Groups:
        """Declare the image of floats, what makes a byte of one, and the window."""
        node = call.node
        op, x, out = node.operation(QuantisedConvolution), node.inputs[0], node.output
        axes, _ = pixel_groups(node)
        call.tensor("FLOATS", x, axes)
        operands = [Operand("FLOATS")]
        for number, value in enumerate(node.own_inputs[2:]):
            operands.append(Operand(f"FLOATS{number}", 0))
            call.operand(operands[-1].role, value, spread(value, x), x.shape, axes)
        call.function(function("quantised", op.fragment, operands, len(axes)))
        shift = 128 if op.fragment.element_type is ElementType.i8 else 0
        call.define(**{"IN0_AT(b, z, y, x, c)": f"(quantised(b, z, y, x, c, ARGUMENTS) + {shift})"})
        call.define(**{"IN0_LOAD(byte)": "(byte)"})
        if needs_rounding(op.fragment):
            call.options(ROUNDED_DIVISIONS)
        convolution_geometry(node).declare(call)
        call.define(FLAT=False)
        for role, size in (("IN", spatial(x.shape)), ("OUT", spatial(out.shape))):
            z, y, width = size
            call.scalars(**{f"{role}_Z": z, f"{role}_Y": y, f"{role}_X": width})
        return [(0, *range(2, out.rank)), (1,)]
