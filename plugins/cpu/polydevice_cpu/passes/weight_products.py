"""weight_products: products of f32 with weights of 8 bits, which stay what they are.

x is written as digits of 8 bits, x = step * (65536 a + 256 b + c), so that its product is three
products of bytes, which read a quarter of what the same weights take as f32. No accuracy is given
up: 24 bits are what an f32 holds, here counted from the largest number of each row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.emitter import Emitter
from polydevice.network import Network
from polydevice.network.kept_layers import KeptLayers
from polydevice.node import Node, Port, constant
from polydevice.ops.matmul import MatMul
from polydevice.ops.op import Op, operation
from polydevice.rewrites.integers.integer_product import IntegerProduct, check_same
from polydevice.rewrites.integers.products import FLOAT_REASON, fits, per_output
from polydevice.rewrites.integers.quantised import quantised_constant
from polydevice.rewrites.pattern import Replacements
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc

DIGITS = 3
ZERO = 128
"""What a digit is stored more than it counts."""

LEAST_WEIGHTS = 1 << 20
"""Smaller matrices stay f32: taking x apart takes 15 µs, reading a million f32 some 150."""


@operation("Digits", domain="polydevice.cpu")
class Digits(Op):
    """Rows of numbers as rows of three digits of 8 bits, the first digits of all rows first.

    x = step * (65536 a + 256 b + c), each digit stored with 128 added; step is the largest
    |x| of the row over 8,355,711.

    Inputs:  x      [..., K], f32
    Outputs: digits [3 * rows, K], u8
             step   [..., 1], f32
    """

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return both shapes."""
        shape = inputs[0].shape
        if shape is None:
            return [TensorDesc(kind, None) for kind in (ElementType.u8, ElementType.f32)]
        *outer, size = shape
        known = [n for n in outer if isinstance(n, int)]
        rows = DIGITS * math.prod(known) if len(known) == len(outer) else None
        return [
            TensorDesc(ElementType.u8, Shape([rows, size])),
            TensorDesc(ElementType.f32, Shape([*outer, 1])),
        ]


@operation("OfDigits", domain="polydevice.cpu")
class OfDigits(Op):
    """What the products of digits tell about the product of the rows.

    Inputs:  products [3 * rows, N], f32
             step     [..., 1], f32
    Outputs: y        [..., N], f32
    """

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the shape of the product."""
        products, step = inputs
        if products.shape is None or step.shape is None:
            return [TensorDesc(ElementType.f32, None)]
        return [TensorDesc(ElementType.f32, Shape([*list(step.shape)[:-1], products.shape[-1]]))]


def weight_products(network: Network) -> None:
    """Rewrite products of f32 with large constant matrices of 8 bits and a scale per column."""
    kept = KeptLayers.of(network)
    replacements = Replacements()
    for node in network.nodes():
        if not isinstance(node.op, MatMul) or kept.has(node.layers):
            continue
        source, weights = node.inputs
        rank = source.desc.rank
        if source.element_type is not ElementType.f32 or rank is None or rank < 2:
            continue
        if node.op.transpose_a or weights.desc.rank != 2 or source.node.constant is not None:
            continue
        made = _product(node, network)
        if made is not None:
            check_same(made, node.output)
            replacements.put(node.output, made)
    replacements.apply(network)


def _product(node: Node, network: Network) -> Port | None:
    assert isinstance(node.op, MatMul)
    w = quantised_constant(node.inputs[1], network.evaluate)
    if w is None or w.integers.size < LEAST_WEIGHTS or not fits(node, w.integers):
        return None
    scale = per_output(node, w)
    if scale is None:
        return None
    build = Emitter(node.name, origins=node.layers)
    digits, step = build.emit_all(Digits(), node.inputs[0], name=f"{node.name}/digits")
    numbers: dict[str, Array | np.generic] = {
        "weights": w.integers,
        "scale": np.asarray(scale, np.float32),
        "zero": np.int32(ZERO),
        "factor": np.float32(1),
    }
    inputs = [constant(f"{node.name}/{name}", array).output for name, array in numbers.items()]
    product = IntegerProduct(MatMul(transpose_b=node.op.transpose_b))
    products = build.replacement(node, product, digits, *inputs)  # what `explain` shows
    products.node.rt_info.pop(FLOAT_REASON, None)
    return build.emit(OfDigits(), products, step, name=f"{node.name}/sum")
