"""What deformable convolutions are made of: samples of all taps, and a product with the weights."""

from __future__ import annotations

import math
from collections.abc import Sequence

from polydevice.dtype import ElementType
from polydevice.emitter import Emitter
from polydevice.node import Port
from polydevice.ops.convolution_special import DeformableConvolution
from polydevice.ops.matmul import MatMul
from polydevice.ops.op import Op, operation
from polydevice.rewrites.facts import shape_of
from polydevice.rewrites.rule import Rule
from polydevice.tensor import TensorDesc
from polydevice_cpu.algorithms.by_machine.code import has_avx512

MOST_BYTES = 32 << 20
"""Of larger samples some rows at a time are multiplied, and not kept."""


@operation("DeformableColumns", domain="polydevice.cpu")
class DeformableColumns(Op):
    """What a DeformableConvolution reads for each result, beside each other.

    Inputs:  x        [N, C, H, W], f32
             offsets  [N, deformable_group * KH * KW * 2, H', W']
             mask     optional, [N, deformable_group * KH * KW, H', W']
    Outputs: y        [N, C * KH * KW, H' * W'], f32
    Source:  OpenVINO opset8 DeformableConvolution
    """

    convolution: DeformableConvolution
    kernel: tuple[int, int]

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return a column for each result."""
        x, offsets, *_ = inputs
        assert x.shape is not None
        assert offsets.shape is not None
        taps, points = math.prod(self.kernel), offsets.shape[2] * offsets.shape[3]
        return [x.with_shape([x.shape[0], x.shape[1] * taps, points]).without_value()]


def has_columns(x: Sequence[int], offsets: Sequence[int], kernel: Sequence[int]) -> bool:
    """Whether there is code that reads columns of such inputs in f32, and room for all of them."""
    from polydevice_cpu.algorithms.by_machine.resampling import filters  # for few networks

    count = x[0] * x[1] * math.prod((*kernel, *offsets[2:]))
    return has_avx512() and 0 < 4 * count <= MOST_BYTES and filters.is_known(x[2:])


def _is_made_of_columns(op: Op, inputs: Sequence[Port]) -> bool:
    if not isinstance(op, DeformableConvolution):
        return False
    if any(p.element_type is not ElementType.f32 or not p.desc.is_static for p in inputs):
        return False
    x, offsets, weights, *_ = map(shape_of, inputs)
    return has_columns(x, offsets, weights[2:])


def _by_columns(build: Emitter, op: Op, inputs: Sequence[Port]) -> list[Port]:
    assert isinstance(op, DeformableConvolution)
    x, offsets, weights, *mask = inputs
    batch, (results, _, *kernel), points = shape_of(x)[0], shape_of(weights), shape_of(offsets)[2:]
    high, wide = kernel
    columns = build.emit(DeformableColumns(op, (high, wide)), x, offsets, *mask)
    matrices: tuple[int, ...] = results, shape_of(columns)[1]
    if op.group > 1:
        matrices = op.group, results // op.group, matrices[1] // op.group
        columns = build.reshape(columns, (batch, *matrices[::2], math.prod(points)))
    product = build.emit(MatMul(), build.reshape(weights, matrices), columns)
    return [build.reshape(product, (batch, results, *points))]


COLUMNS = Rule(_by_columns, _is_made_of_columns)
"""Of a `DeformableConvolution` in f32."""
