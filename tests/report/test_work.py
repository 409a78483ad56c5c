"""Operations and constants of layers: literals worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice import opset
from polydevice.report.work import Work, work_of


def of(output, name: str) -> Work:
    return work_of(opset.network("net", {"y": output}))[name]


def test_products():
    x = opset.parameter([2, 6, 9, 7], name="x")
    # 2 x 8 outputs of 5 x 4 (strides 2), each a sum over 6 x 3 x 2 products.
    weights = np.zeros((8, 6, 3, 2), np.float32)
    plain = opset.convolution(x, weights, strides=(2, 2), pads_begin=(1, 1), pads_end=(1, 1))
    assert tuple(plain.shape.static) == (2, 8, 5, 4)
    assert of(plain, plain.node.name) == Work(2 * 2 * 8 * 5 * 4 * 6 * 3 * 2, 8 * 6 * 3 * 2)
    # Two groups of 4 outputs and 3 inputs each.
    grouped = opset.group_convolution(x, np.zeros((2, 4, 3, 1, 1), np.float32), strides=(1, 1))
    assert of(grouped, grouped.node.name) == Work(2 * (2 * 8 * 9 * 7) * 3, 2 * 4 * 3)
    # Transposed: each of the 2 x 6 x 9 x 7 inputs is added to 5 x 2 x 2 outputs.
    back = opset.convolution_backprop_data(x, np.zeros((6, 5, 2, 2), np.float32), strides=(2, 2))
    assert of(back, back.node.name) == Work(2 * (2 * 6 * 9 * 7) * 5 * 2 * 2, 6 * 5 * 2 * 2)
    a = opset.parameter([3, 11, 5], name="a")
    product = opset.mat_mul(a, np.zeros((11, 13), np.float32), transpose_a=True)
    assert tuple(product.shape.static) == (3, 5, 13)
    assert of(product, product.node.name) == Work(2 * 3 * 5 * 13 * 11, 11 * 13)
    query, key = opset.parameter([2, 4, 8], name="q"), opset.parameter([2, 6, 8], name="k")
    value = opset.parameter([2, 6, 3], name="v")
    attention = opset.scaled_dot_product_attention(query, key, value)
    # 2 x 4 rows with 6 scores of 8 products, then 3 sums over 6.
    assert of(attention, attention.node.name) == Work(2 * 2 * 4 * 6 * (8 + 3), 0)


def test_elements_movement_and_unknown_sizes():
    x = opset.parameter([2, 3, 8, 8], name="x")
    active = opset.relu(x)
    assert of(active, active.node.name).operations == 2 * 3 * 8 * 8
    total = opset.reduce_sum(x, [2, 3])
    assert of(total, total.node.name).operations == 2 * 3 * 8 * 8
    pooled = opset.max_pool(x, kernel=(3, 2), strides=(2, 2))
    outputs = pooled[0] if isinstance(pooled, (list, tuple)) else pooled
    assert of(outputs, outputs.node.name).operations == outputs.shape.elements * 6
    moved = opset.transpose(x, [0, 2, 3, 1])
    assert of(moved, moved.node.name).operations == 0
    unknown = opset.relu(opset.parameter([None, 3], name="u"))
    assert of(unknown, unknown.node.name).operations is None
    product = opset.mat_mul(opset.parameter([None, 3], name="u"), np.zeros((3, 4), np.float32))
    assert of(product, product.node.name) == Work(None, 12)


@pytest.mark.parametrize(("direction", "count"), [("forward", 1), ("bidirectional", 2)])
def test_recurrent(direction, count):
    from polydevice.ops.recurrent import Direction

    batch, steps, size, hidden = 2, 5, 3, 4
    zeros = np.zeros
    outputs = opset.lstm_sequence(
        opset.parameter([batch, steps, size], name="x"),
        zeros((batch, count, hidden), np.float32),
        zeros((batch, count, hidden), np.float32),
        np.full(batch, steps, np.int64),
        zeros((count, 4 * hidden, size), np.float32),
        zeros((count, 4 * hidden, hidden), np.float32),
        zeros((count, 4 * hidden), np.float32),
        hidden_size=hidden,
        direction=Direction(direction),
    )
    found = of(outputs[0], outputs[0].node.name)
    assert found.operations == 2 * batch * steps * count * 4 * hidden * (size + hidden)
