"""Recurrent cells and sequences, compared with OpenVINO and onnx.reference."""

from __future__ import annotations

import numpy as np
import onnx.helper
import onnx.reference
import pytest

from polydevice.errors import NetworkError, ShapeError
from polydevice.ops import recurrent as ops
from polydevice.ops.op import find_operation
from polydevice.ops.recurrent import Direction
from polydevice.tensor import desc_of
from polydevice.testing.op_case import OpCase, network_of
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case

RANDOM = np.random.default_rng(43)
B, T, I, H = 3, 5, 4, 6  # noqa: E741 - batch, time, input and hidden size


def floats(*shape):
    return RANDOM.uniform(-1, 1, shape).astype(np.float32)


def weights(gates, bias_gates=None, directions=()):
    return [
        floats(*directions, gates * H, I),
        floats(*directions, gates * H, H),
        floats(*directions, (bias_gates or gates) * H),
    ]


@pytest.mark.parametrize(
    "settings",
    [{}, {"clip": 0.4}, {"activations": ("sigmoid", "relu", "tanh")}],
    ids=["default", "clip", "relu"],
)
def test_lstm_cell(settings, device):
    op = ops.LSTMCell(hidden_size=H, **settings)
    case = openvino_case(
        op, floats(B, I), floats(B, H), floats(B, H), *weights(4), constants={3, 4, 5}
    )
    check(case, device)


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("clip", [0.0, 0.5])
def test_gru_cell(linear, clip, device):
    op = ops.GRUCell(hidden_size=H, linear_before_reset=linear, clip=clip)
    inputs = [floats(B, I), floats(B, H), *weights(3, 4 if linear else 3)]
    check(openvino_case(op, *inputs, constants={2, 3, 4}), device)


@pytest.mark.parametrize("activation", ["tanh", "relu", "sigmoid"])
def test_rnn_cell(activation, device):
    op = ops.RNNCell(hidden_size=H, activations=(activation,))
    check(openvino_case(op, floats(B, I), floats(B, H), *weights(1), constants={2, 3, 4}), device)


DIRECTIONS = list(Direction)
LENGTHS = [[T] * B, [2, T, 3], [1, 4, 0]]


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("lengths", LENGTHS[:2])
def test_lstm_sequence(direction, lengths, device):
    d = direction.count
    op = ops.LSTMSequence(hidden_size=H, direction=direction)
    inputs = [floats(B, T, I), floats(B, d, H), floats(B, d, H), np.array(lengths, np.int32)]
    case = openvino_case(op, *inputs, *weights(4, None, (d,)), constants={4, 5, 6})
    check(case, device)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("lengths", LENGTHS[:2])
@pytest.mark.parametrize("linear", [False, True])
def test_gru_sequence(direction, lengths, linear, device):
    d = direction.count
    op = ops.GRUSequence(hidden_size=H, direction=direction, linear_before_reset=linear)
    inputs = [floats(B, T, I), floats(B, d, H), np.array(lengths, np.int32)]
    case = openvino_case(op, *inputs, *weights(3, 4 if linear else 3, (d,)), constants={3, 4, 5})
    check(case, device)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("lengths", LENGTHS[:2])
def test_rnn_sequence(direction, lengths, device):
    d = direction.count
    op = ops.RNNSequence(hidden_size=H, direction=direction)
    inputs = [floats(B, T, I), floats(B, d, H), np.array(lengths, np.int32)]
    check(openvino_case(op, *inputs, *weights(1, None, (d,)), constants={3, 4, 5}), device)


@pytest.mark.parametrize(
    ("op", "gates", "states"),
    [
        (ops.LSTMSequence(hidden_size=H), 4, 2),
        (ops.GRUSequence(hidden_size=H), 3, 1),
        (ops.RNNSequence(hidden_size=H), 1, 1),
    ],
    ids=lambda value: getattr(value, "type", ""),
)
def test_each_input_of_a_sequence_must_fit_the_others(op, gates, states):
    shapes = [(B, T, I), *[(B, 1, H)] * states, (B,)]
    shapes += [(1, gates * H, I), (1, gates * H, H), (1, gates * H)]
    for wrong in range(len(shapes)):
        given = [(*shape[:-1], shape[-1] + (i == wrong)) for i, shape in enumerate(shapes)]
        arrays = [np.zeros(shape, "i4" if len(shape) == 1 else "f4") for shape in given]
        with pytest.raises(ShapeError, match=op.type):
            op.infer([desc_of(array) for array in arrays])


def test_a_sequence_is_its_cell_repeated(device):
    """Also with a length of 0, which leaves the states as they were."""
    x, h, c = floats(B, T, I), floats(B, 1, H), floats(B, 1, H)
    w, r, b = weights(4, None, (1,))
    lengths = np.array(LENGTHS[2], np.int64)
    y = np.zeros((B, 1, T, H), np.float32)
    last_h, last_c = h.copy(), c.copy()

    def logistic(v):
        return 1 / (1 + np.exp(-v))

    for item, length in enumerate(lengths):
        for t in range(length):
            total = x[item, t] @ w[0].T + last_h[item, 0] @ r[0].T + b[0]
            f, i, g, o = np.split(total, 4)
            last_c[item, 0] = logistic(f) * last_c[item, 0] + logistic(i) * np.tanh(g)
            last_h[item, 0] = logistic(o) * np.tanh(last_c[item, 0])
            y[item, 0, t] = last_h[item, 0]
    op = ops.LSTMSequence(hidden_size=H)
    check(OpCase(op, [x, h, c, lengths, w, r, b], [y, last_h, last_c]), device)


def onnx_order(array, order):
    """Move an LSTM's gates from f, i, c, o to ONNX's i, o, f, c."""
    blocks = dict(zip("fico", np.split(array, 4, axis=1), strict=True))
    return np.concatenate([blocks[g] for g in order], axis=1)


def test_peepholes_as_onnx_has_them(device):
    x, h, c = floats(B, T, I), floats(B, 1, H), floats(B, 1, H)
    w, r, b = weights(4, None, (1,))
    peepholes = floats(1, 3 * H)
    node = onnx.helper.make_node(
        "LSTM", ["x", "w", "r", "b", "", "h", "c", "p"], ["y", "yh"], hidden_size=H
    )
    session = onnx.reference.ReferenceEvaluator(node)
    y, last = session.run(
        None,
        {
            "x": x.swapaxes(0, 1), "h": h.swapaxes(0, 1), "c": c.swapaxes(0, 1), "p": peepholes,
            "w": onnx_order(w, "iofc"), "r": onnx_order(r, "iofc"),
            "b": np.concatenate([onnx_order(b, "iofc"), np.zeros_like(b)], axis=1),
        },
    )  # fmt: skip
    op = ops.LSTMSequence(hidden_size=H)
    lengths = np.full(B, T, np.int64)
    expected = [y.transpose(2, 1, 0, 3), last.swapaxes(0, 1), None]
    check(OpCase(op, [x, h, c, lengths, w, r, b, peepholes], expected), device)


def test_the_order_of_gates_in_opset1(device):
    op = find_operation("LSTMCell", "opset1").from_ir(
        {"hidden_size": str(H), "weights_format": "iofc"}, 1
    )
    assert op.opset == "opset1"
    x, h, c = floats(B, I), floats(B, H), floats(B, H)
    w, r, b = weights(4)
    answer = openvino_case(ops.LSTMCell(hidden_size=H), x, h, c, w, r, b, constants={3, 4, 5})
    moved = [onnx_order(v[np.newaxis], "iofc")[0] for v in (w, r, b)]
    expected = lambda values: answer.answers([*values[:3], w, r, b])  # noqa: E731
    check(OpCase(op, [x, h, c, *moved], expected, others=[x + 1, h, -c, *moved]), device)


@pytest.mark.parametrize(
    ("name", "alpha", "beta", "function"),
    [
        ("hardsigmoid", 0.3, 0.4, lambda v: np.clip(0.3 * v + 0.4, 0, 1)),
        ("leakyrelu", 0.1, 0, lambda v: np.where(v < 0, 0.1 * v, v)),
        ("elu", 0.7, 0, lambda v: np.where(v < 0, 0.7 * np.expm1(v), v)),
        ("scaledtanh", 2, 0.5, lambda v: 2 * np.tanh(0.5 * v)),
        ("affine", 2, 0.5, lambda v: 2 * v + 0.5),
        ("thresholdedrelu", 0.2, 0, lambda v: np.where(v > 0.2, v, 0)),
        ("Softsign", 0, 0, lambda v: v / (1 + np.abs(v))),
        ("Softplus", 0, 0, lambda v: np.log1p(np.exp(v))),
    ],
)
def test_activations_that_onnx_adds(name, alpha, beta, function, device):
    op = ops.RNNCell(hidden_size=H, activations=(name,), activations_alpha=(alpha,),
                     activations_beta=(beta,))  # fmt: skip
    x, h, (w, r, b) = floats(B, I), floats(B, H), weights(1)
    expected = function(x @ w.T + h @ r.T + b).astype(np.float32)
    check(OpCase(op, [x, h, w, r, b], [expected]), device)


def test_without_bias(device):
    x, h, (w, r, _) = floats(B, I), floats(B, H), weights(1)
    op = ops.RNNCell(hidden_size=H)
    check(OpCase(op, [x, h, w, r], [np.tanh(x @ w.T + h @ r.T)]), device)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden_size": H, "activations": ("sin",)}, "activations"),
        ({"hidden_size": H + 1}, r"must be \[3,7\]"),
        ({"hidden_size": 0}, "positive"),
    ],
)
def test_what_does_not_fit_is_refused(settings, message):
    with pytest.raises(NetworkError, match=message):
        network_of(OpCase(ops.RNNCell(**settings), [floats(B, I), floats(B, H), *weights(1)], []))
