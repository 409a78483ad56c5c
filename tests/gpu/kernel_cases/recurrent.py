"""Recurrent sequences in both directions, of several lengths, with all that ONNX adds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from onnx import helper

from polydevice.dtype import Array
from polydevice.ops.op import Op
from polydevice.ops.recurrent import (
    Direction,
    GRUSequence,
    LSTMSequence,
    RNNSequence,
    SequenceOf,
)
from polydevice.testing.op_case import OpCase
from polydevice_gpu.ops import RecurrentSteps
from tests.gpu.kernel_cases.data import Cases, Data
from tests.onnx.models import model, onnxruntime_outputs, tensor, value
from tests.ops.openvino_oracle import openvino_case


def sequence_inputs(
    data: Data, op: SequenceOf, batch: int, steps: int, size: int, lengths: list[int] | None = None
) -> list[Array]:
    """Return inputs of a recurrent sequence; its weights are the last three."""
    count, hidden = op.direction.count, op.hidden_size
    rows = op.gates * hidden
    scale = np.asarray(hidden**-0.5, data.dtype)
    return [
        data(batch, steps, size),
        *(data(batch, count, hidden) for _ in range(op.states)),
        np.array([steps] * batch if lengths is None else lengths, np.int32),
        data(count, rows, size) * scale,
        data(count, rows, hidden) * scale,
        data(count, op.bias_gates * hidden),
    ]


def recurrents(data: Data) -> Iterator[OpCase]:
    def case(op: SequenceOf, *sizes: int, lengths: list[int] | None = None) -> OpCase:
        inputs = sequence_inputs(data, op, *sizes, lengths=lengths)
        constants = set(range(2 + op.states, len(inputs)))
        if lengths is None:
            constants.add(1 + op.states)
        return openvino_case(op, *inputs, constants=constants)

    both, back = Direction.BIDIRECTIONAL, Direction.REVERSE
    yield case(LSTMSequence(hidden_size=19), 2, 6, 5)
    yield case(LSTMSequence(hidden_size=7, direction=both, clip=0.4), 3, 5, 4, lengths=[2, 5, 4])
    yield case(GRUSequence(hidden_size=17, direction=back), 3, 6, 5, lengths=[6, 1, 3])
    linear = GRUSequence(hidden_size=9, direction=both, linear_before_reset=True)
    yield case(linear, 2, 7, 3, lengths=[3, 7])
    yield case(RNNSequence(hidden_size=37, activations=("relu",)), 2, 5, 6)
    # Weights that are computed; the answer is that of constant ones.
    op = GRUSequence(hidden_size=11, direction=both)
    inputs = sequence_inputs(data, op, 2, 5, 3)
    yield replace(openvino_case(op, *inputs, constants={3, 4, 5}), constants=())
    if data.dtype == "f4":
        yield _peepholes(data, Direction.FORWARD)
        yield _peepholes(data, both)
        yield _coupled_gates(data)


def _coupled_gates(data: Data) -> OpCase:
    """The definition, step by step: with `input_forget` the input gate is 1 - the forget gate."""
    op = LSTMSequence(hidden_size=6, input_forget=True)
    inputs = sequence_inputs(data, op, 2, 5, 4)
    x, h, c, _, w, r, b = (v.astype("f8") for v in inputs)
    h, c, y = h[:, 0], c[:, 0], []
    for t in range(5):
        f, _, g, o = np.split(x[:, t] @ w[0].T + h @ r[0].T + b[0], 4, axis=1)
        f, o = 1 / (1 + np.exp(-f)), 1 / (1 + np.exp(-o))
        c = f * c + (1 - f) * np.tanh(g)
        h = o * np.tanh(c)
        y.append(h)
    answer = [np.stack(y, 1)[:, np.newaxis], h[:, np.newaxis], c[:, np.newaxis]]
    expected = [np.asarray(v, "f4") for v in answer]
    return OpCase(op, inputs, expected, constants={3, 4, 5, 6})


def _peepholes(data: Data, direction: Direction) -> OpCase:
    """An LSTM with what only ONNX has, its gates in ONNX's order; ONNX Runtime answers."""
    op = LSTMSequence(hidden_size=13, direction=direction, weights_format="iofc")
    x, h, c, lengths, w, r, b = sequence_inputs(data, op, 3, 6, 4, lengths=[6, 2, 5])
    p = data(direction.count, 3 * op.hidden_size)
    stored = {
        "w": w, "r": r, "b": np.concatenate([b, np.zeros_like(b)], 1), "lengths": lengths,
        "h": h.swapaxes(0, 1), "c": c.swapaxes(0, 1), "p": p,
    }  # fmt: skip
    node = helper.make_node(
        "LSTM", ["x", *stored], ["y", "last", "cell"], hidden_size=op.hidden_size,
        direction=direction.value,
    )  # fmt: skip
    proto = model(
        [node],
        [value("x", (6, 3, 4))],
        [value(name, None) for name in node.output],
        initializers=[tensor(name, array) for name, array in stored.items()],
        opset=14,
    )

    def expected(inputs: Sequence[Array]) -> list[Array]:
        if inputs[1] is not h:
            raise LookupError("the model holds all but x")
        y, last, cell = onnxruntime_outputs(proto, inputs[0].swapaxes(0, 1))
        return [y.transpose(2, 1, 0, 3), last.swapaxes(0, 1), cell.swapaxes(0, 1)]

    return OpCase(op, [x, h, c, lengths, w, r, b, p], expected, constants={4, 5, 6, 7})


CASES: dict[type[Op], Cases] = {
    RecurrentSteps: recurrents,
}
