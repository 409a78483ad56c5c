"""measure_rows: who makes rows measures them, for products that normalise them.

A product that normalises its rows would have to read all of them for their mean and deviation while
its matrix units multiply. Whoever makes them has them in registers: a product leaves mean and
squares of the columns of each of its tiles, a lookup of a table's rows those of whole rows, and the
other one joins these when its sums are there.
"""

from __future__ import annotations

from polydevice.dtype import ElementType
from polydevice.ops.gather import Gather
from polydevice.ops.matmul import MatMul
from polydevice_gpu.graph import GpuGraph, GpuNode, Value
from polydevice_gpu.kernels.kernel import Kernel
from polydevice_gpu.kernels.product.gemm_warps import MatmulWarps
from polydevice_gpu.kernels.product.measured import MeasuredGatherRef, MeasuredWarps
from polydevice_gpu.kernels.product.normalized import NormalizedWgmma
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.measured_ops import MeasuredGather, MeasuredMatMul, MomentsMatMul
from polydevice_gpu.ops import NormalizedMatMul
from polydevice_gpu.passes.select_kernels import choose_kernel

_MOST_SLOTS = 64
"""Of a row: a lane keeps a fourth of them in registers."""


def measure_rows(graph: GpuGraph, target: Target) -> None:
    """Let products that normalise rows be told their moments, where who makes these can tell."""
    for node in graph.nodes:
        if type(node.op) is not NormalizedMatMul:
            continue
        kernel, _ = choose_kernel(node, target)
        if not isinstance(kernel, NormalizedWgmma):
            continue
        moments = _moments(node.inputs[0], target)
        if moments is None:
            continue
        op = node.operation(NormalizedMatMul)
        own, extras = node.own_inputs, node.extra_inputs
        assert moments.producer is not None
        made = moments.producer.op
        width = made.width if isinstance(made, MeasuredMatMul) else node.inputs[0].shape[-1]
        node.op = MomentsMatMul(**op.attributes(), width=width)
        node.inputs = [*own, moments, *extras]


def _moments(x: Value, target: Target) -> Value | None:
    """Return the moments of a value's rows, which its maker then measures; None if it cannot."""
    maker = x.producer
    if maker is None or maker.is_opaque:
        return None
    if isinstance(maker.op, (MeasuredMatMul, MeasuredGather)):
        return maker.outputs[1]
    kernel: Kernel
    op = maker.op
    if type(op) is Gather:
        slots, kernel = 1, MeasuredGatherRef()
        maker.op = MeasuredGather(**op.attributes())
    else:
        width = _width(maker, target)
        slots = -(-x.shape[-1] // width) if width else 0
        if not 0 < slots <= _MOST_SLOTS or x.storage is not ElementType.f16:
            return None
        kernel = MeasuredWarps()
        maker.op = MeasuredMatMul(**op.attributes(), width=width)
    if kernel.refuses(maker, target):
        maker.op = op
        return None
    shape = (x.elements // x.shape[-1], slots, 2)
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
