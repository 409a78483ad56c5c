"""How many arithmetic operations the layers of a network take, and how large their constants are.

A product with the sum it goes into counts as two, as is usual where peaks are given. What moves
elements only has none; other layers count one for each element of their largest tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from polydevice.network import Network
from polydevice.node import Node
from polydevice.ops.attention import ScaledDotProductAttention
from polydevice.ops.convolution import ConvolutionBackpropData, ConvolutionLike
from polydevice.ops.convolution_special import DeformableConvolution
from polydevice.ops.matmul import GroupedMatMul, MatMul
from polydevice.ops.recurrent import Cell, Recurrent, SequenceOf
from polydevice.tensor import TensorDesc

_COUNTED = frozenset(
    {
        *(
            "activation",
            "arithmetic",
            "bitwise",
            "color",
            "comparison",
            "cumulative",
            "interpolate",
        ),
        *("logical", "math", "normalization", "pooling", "quantize", "quantize_linear", "reduce"),
        *("resampling", "select", "softmax", "roi", "grid_sample"),
    }
)
"""Modules of `polydevice.ops` whose operations compute something for each element."""


class Work(NamedTuple):
    """What a layer takes.

    Attributes:
        operations: arithmetic operations; None when a size is not known.
        constants: elements of its constants, such as weights.
    """

    operations: int | None
    constants: int


def work_of(network: Network) -> dict[str, Work]:
    """Return the work of every layer of a network by its name."""
    return {
        node.name: Work(_operations(node), _constants(node))
        for node in network.nodes()
        if node.type not in ("Const", "Parameter", "Result")
    }


def elements(desc: TensorDesc) -> int | None:
    """Return the number of elements; None when a size is not known."""
    if desc.kind != "tensor" or desc.shape is None or not desc.shape.is_static:
        return None
    return desc.shape.elements


def _constants(node: Node) -> int:
    return sum(elements(port.desc) or 0 for port in node.inputs if _is_constant(port.node))


def _is_constant(node: Node) -> bool:
    """Whether a node is a constant, or only converts or reshapes one, as models store weights."""
    for _ in range(8):
        if node.constant is not None:
            return True
        if node.type not in ("Convert", "Reshape", "Transpose", "Unsqueeze") or not node.inputs:
            return False
        node = node.inputs[0].node
    return False


def _operations(node: Node) -> int | None:
    for kind, count in _PRODUCTS.items():
        if isinstance(node.op, kind):
            try:
                return count(node)
            except (IndexError, _UnknownSizeError):  # the former for ranks that no rule admits
                return None
    if type(node.op).__module__.rpartition(".")[2] not in _COUNTED:
        return 0
    counts = [elements(port.desc) for port in (*node.inputs, *node.outputs)]
    known = [count for count in counts if count is not None]
    if len(known) < len(counts):
        return None
    window = getattr(node.op, "kernel", ())  # of a pooling
    return known[-1] * math.prod(window) if window else max(known, default=0)


class _UnknownSizeError(Exception):
    """Raised in here only: a size is known when the network runs, not before."""


def _sizes(desc: TensorDesc) -> tuple[int, ...]:
    if desc.shape is None or not desc.shape.is_static:
        raise _UnknownSizeError
    return desc.shape.static


def _input(node: Node, number: int) -> tuple[int, ...]:
    return _sizes(node.inputs[number].desc)


def _output(node: Node) -> tuple[int, ...]:
    return _sizes(node.outputs[0].desc)


def _convolution(node: Node) -> int:
    """Weights are [O, I, …], or [G, O, I, …]: each output sums over what lies behind O."""
    grouped = getattr(node.op, "grouped", False)
    return 2 * math.prod(_output(node)) * math.prod(_input(node, 1)[2 if grouped else 1 :])


def _backward(node: Node) -> int:
    """Weights are [I, O, …], or [G, I, O, …]: each input goes into what lies behind I."""
    grouped = getattr(node.op, "grouped", False)
    return 2 * math.prod(_input(node, 0)) * math.prod(_input(node, 1)[2 if grouped else 1 :])


def _deformable(node: Node) -> int:
    return 2 * math.prod(_output(node)) * math.prod(_input(node, 2)[1:])


def _matmul(node: Node) -> int:
    a = _input(node, 0)
    inner = a[-2] if getattr(node.op, "transpose_a", False) and len(a) > 1 else a[-1]
    return 2 * math.prod(_output(node)) * inner


def _attention(node: Node) -> int:
    """Scores for every pair of query and key, and as many products with values."""
    key, value, out = _input(node, 1), _input(node, 2), _output(node)
    return 2 * math.prod(out[:-1]) * key[-2] * (key[-1] + value[-1])


def _recurrent(node: Node) -> int:
    assert isinstance(node.op, Recurrent)
    x, hidden = _input(node, 0), node.op.hidden_size
    rows = math.prod(x[:-1])
    directions = node.op.direction.count if isinstance(node.op, SequenceOf) else 1
    assert isinstance(node.op, (Cell, SequenceOf))
    return 2 * rows * directions * node.op.gates * hidden * (x[-1] + hidden)


_PRODUCTS: dict[type, Callable[[Node], int]] = {
    ConvolutionBackpropData: _backward,
    ConvolutionLike: _convolution,
    DeformableConvolution: _deformable,
    MatMul: _matmul,
    GroupedMatMul: _matmul,
    ScaledDotProductAttention: _attention,
    Recurrent: _recurrent,
}
"""Operations that multiply and sum, the more special first."""
