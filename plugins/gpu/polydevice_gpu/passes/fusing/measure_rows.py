"""measure_rows: products measure the rows that they make, for products that normalise them.

A product that normalises its rows would have to read all of them for their mean and deviation while
its matrix units multiply. Whoever makes them has them in registers: it leaves mean and squares of
the columns of each of its tiles, which the other one joins when its sums are there.
"""

from __future__ import annotations

from polydevice.dtype import ElementType
from polydevice.ops.matmul import MatMul
from polydevice_gpu.graph import GpuGraph, GpuNode, Value
from polydevice_gpu.kernels.product.gemm_warps import MatmulWarps
from polydevice_gpu.kernels.product.measured import MeasuredWarps
from polydevice_gpu.kernels.product.normalized import NormalizedWgmma
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.ops import MeasuredMatMul, MomentsMatMul, NormalizedMatMul
from polydevice_gpu.passes.select_kernels import choose_kernel

_MOST_SLOTS = 64
"""Of a row: a lane keeps a fourth of them in registers."""


def measure_rows(graph: GpuGraph, target: Target) -> None:
    """Let products that normalise rows be told their moments, where warps make these rows."""
    for node in graph.nodes:
        if type(node.op) is not NormalizedMatMul:
            continue
        kernel, _ = choose_kernel(node, target)
        if not isinstance(kernel, NormalizedWgmma):
            continue
        moments = _moments(node.inputs[0], target)
        if moments is None:
            continue
        maker, op = moments.producer, node.operation(NormalizedMatMul)
        assert maker is not None
        own, extras = node.own_inputs, node.extra_inputs
        width = maker.operation(MeasuredMatMul).width
        node.op = MomentsMatMul(**op.attributes(), width=width)
        node.inputs = [*own, moments, *extras]


def _moments(x: Value, target: Target) -> Value | None:
    """Return the moments of a value's rows, which its maker then measures; None if it cannot."""
    maker = x.producer
    if maker is None or maker.is_opaque or not isinstance(maker.op, MatMul):
        return None
    if isinstance(maker.op, MeasuredMatMul):
        return maker.outputs[1]
    width = _width(maker, target)
    if not width or x.storage is not ElementType.f16 or -(-x.shape[-1] // width) > _MOST_SLOTS:
        return None
    op = maker.op
    maker.op = MeasuredMatMul(**op.attributes(), width=width)
    if MeasuredWarps().refuses(maker, target):
        maker.op = op
        return None
    shape = (x.elements // x.shape[-1], -(-x.shape[-1] // width), 2)
    moments = Value(f"{x.name}/moments", ElementType.f32, shape)
    moments.producer = maker
    maker.outputs.append(moments)
    return moments


def _width(maker: GpuNode, target: Target) -> int:
    """Return the columns of the tile by which warps are expected to make rows; 0 if others do."""
    if type(maker.op) is not MatMul:
        return 0
    kernel, _ = choose_kernel(maker, target)
    if not isinstance(kernel, MatmulWarps):
        return 0
    width = kernel.modes[kernel.default_mode(maker, target)]["BN"]
    return width if any(mode["BN"] == width for mode in MeasuredWarps.modes) else 0
