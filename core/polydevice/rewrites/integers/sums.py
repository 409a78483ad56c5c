"""Weights of ones: products with them are the sums that weights with a number too few lack.

x * (w + n) is x * w + n * (sum of x): the way of weights that do not fit into i8, exactly. A device
whose kernels sum up x themselves reads the weights whole, in i16.
"""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.convolution import ConvolutionBackpropData, ConvolutionLike
from polydevice.ops.matmul import MatMul
from polydevice.ops.op import Op


def may_lack(product: Op, weights: Array) -> bool:
    """Whether sums cost less than the product: not where groups have their own, nor for vectors."""
    return weights.ndim > 1 and not (isinstance(product, ConvolutionLike) and product.grouped)


def whole(product: Op, weights: Array, lacking: Array) -> Array | None:
    """Return weights with what they lack, in i16; None where they do not fit.

    Args:
        product: a convolution or MatMul that reads the weights, see `may_lack`.
        weights: of i8.
        lacking: a number for all of them, [], or what broadcasts to them.
    """
    if isinstance(product, MatMul) and (weights.ndim != 2 or product.transpose_a):
        return None  # more than one matrix, or rows that lie apart
    limits = np.iinfo(np.int16)
    wide: Array = weights.astype(np.int64) + lacking
    if not wide.size or wide.min() < limits.min or wide.max() > limits.max:
        return None
    return wide.astype(np.int16)


def ones(product: Op, weights: Array, numbers: Array) -> Array:
    """Ones that sum up what meets these weights, in i8.

    Args:
        product: a convolution or MatMul that reads the weights, see `may_lack`.
        weights: of i8.
        numbers: what the sums are multiplied by.

    Returns:
        Weights of one output where there is one number for all, otherwise of as many as there are.
    """
    if numbers.size > 1:
        return np.ones(weights.shape, np.int8)
    if isinstance(product, MatMul):
        outputs = weights.ndim - (2 if product.transpose_b else 1)
    else:
        outputs = 1 if isinstance(product, ConvolutionBackpropData) else 0
    return np.ones([1 if n == outputs else s for n, s in enumerate(weights.shape)], np.int8)
