"""What kernels of products say about terms that are integers, and about sums of them."""

from __future__ import annotations

import numpy as np

from polydevice_gpu.graph import GpuNode, Value
from polydevice_gpu.kernels.pointwise.expression import literal
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.types import compute_type
from polydevice_gpu.ops import INTEGER_PRODUCTS, IntegerConvolution
from polydevice_gpu.rounded_ops import RoundedConvolution, RoundedMatMul

EXACT_TERMS = (1 << 24) // (255 * 128)
"""So many products of bytes add up to a number that float has, whatever they are."""


def is_byte_product(node: GpuNode) -> bool:
    """Whether a node sums products of bytes."""
    return isinstance(node.op, INTEGER_PRODUCTS)


def is_float_or_byte_product(node: GpuNode) -> bool:
    """Whether a node's first input is computed in float, or its products are of bytes."""
    return is_byte_product(node) or compute_type(node.inputs[0].storage) == "float"


def zero_of(node: GpuNode) -> int:
    """Return the number of a node's first input that means 0."""
    return int(getattr(node.op, "zero", 0))


def fill_of(node: GpuNode) -> Value | None:
    """Return bytes that are the number that means 0, where that is found at run time."""
    found = node.own_inputs[2:] if type(node.op) is IntegerConvolution else []
    return found[0] if found else None


def inverse_of(scale: float) -> float:
    """Return what is multiplied by where the definition divides, in f32."""
    return float(np.float32(1) / np.float32(scale))


def declare_sums(call: Call, otherwise: str = "float") -> None:
    """Define SUM, the type of sums, ZERO, the number of the input that means 0, and ROUNDED(x).

    Args:
        call: the launch.
        otherwise: type of the sums of what are no integers.
    """
    op = call.node.op
    is_rounded = isinstance(op, (RoundedConvolution, RoundedMatMul))
    call.define(SUM="int" if is_byte_product(call.node) or is_rounded else otherwise)
    call.define(**{"ROUNDED(x)": "(x)"})
    if isinstance(op, (RoundedConvolution, RoundedMatMul)):
        low, high = literal(op.low), literal(op.high)
        scaled = f"(x) * {literal(inverse_of(op.scale))}"
        call.define(**{"ROUNDED(x)": f"(int)rint(fmin(fmax({scaled}, {low}), {high}))"})
    fill = fill_of(call.node)
    if fill is not None:
        call.tensor("FILL", fill)
        call.define(ZERO="(int)FILL_LOAD(FILL_AT(0))")
    elif zero_of(call.node):
        call.scalars(ZERO=zero_of(call.node))
    else:
        call.define(ZERO=0)
