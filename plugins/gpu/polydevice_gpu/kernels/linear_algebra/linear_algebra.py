"""Det and Inverse of square matrices, by elimination with row pivots."""

from __future__ import annotations

import math

from polydevice.dtype import ElementType
from polydevice.ops.linear_algebra import Det, Inverse
from polydevice.ops.op import Op
from polydevice_gpu.kernels.kernel import Mode, SingleLaunch, kernel
from polydevice_gpu.kernels.launch import Scratch
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.types import c_type, compute_type


def _declare(call: Call, copies: int) -> int:
    """Declare the matrices and memory to eliminate in; return how many there are."""
    x = call.node.inputs[0]
    batch, size = tuple(range(x.rank - 2)), x.shape[-1]
    call.tensor("IN0", x, [batch, (x.rank - 2,), (x.rank - 1,)])
    count = math.prod(x.shape[:-2])
    storage = x.storage if compute_type(x.storage) == "double" else ElementType.f32
    work = Scratch(count * size * size * copies, storage)
    call.buffer("WORK", work, c_type(storage), written=True)
    call.scalars(SIZE=size, COUNT=count)
    return count


@kernel(Det)
class DetRef(SingleLaunch):
    """One work-item factorises one matrix."""

    def describe(self, call: Call, op: Op, mode: Mode) -> None:
        """The product of the pivots."""
        count = _declare(call, 1)
        call.result([tuple(range(call.node.output.rank))])
        call.dispatch((count,))


@kernel(Inverse)
class InverseRef(SingleLaunch):
    """One work-item inverts one matrix; of a singular one the result is not finite."""

    def describe(self, call: Call, op: Inverse, mode: Mode) -> None:
        """Gauss and Jordan, beside an identity."""
        out = call.node.output
        count = _declare(call, 2)
        rows, columns = (out.rank - 2,), (out.rank - 1,)
        call.result(
            [tuple(range(out.rank - 2)), *((columns, rows) if op.adjoint else (rows, columns))]
        )
        call.dispatch((count,))
