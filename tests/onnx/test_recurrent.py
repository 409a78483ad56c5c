"""LSTM, GRU and RNN in every form, compared with ONNX Runtime (layout 1: with transposed data)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from polydevice.errors import UnsupportedOperationError
from tests.onnx.models import model, onnxruntime_outputs, run, tensor, value

TIME, BATCH, SIZE, HIDDEN = 5, 3, 4, 6
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def _arrays(kind: str, directions: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    gates = GATES[kind]

    def f(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) * 0.5).astype(np.float32)

    arrays = {
        "w": f(directions, gates * HIDDEN, SIZE),
        "r": f(directions, gates * HIDDEN, HIDDEN),
        "b": f(directions, 2 * gates * HIDDEN),
        "lengths": np.array([5, 2, 4], np.int32),
        "h": f(directions, BATCH, HIDDEN),
    }
    if kind == "LSTM":
        arrays |= {"c": f(directions, BATCH, HIDDEN), "p": f(directions, 3 * HIDDEN)}
    return arrays


def _model(kind: str, given: set[str], arrays: dict[str, np.ndarray], **attributes: Any) -> Any:
    names = ["w", "r", "b", "lengths", "h", *(["c", "p"] if kind == "LSTM" else [])]
    inputs = ["x", *(name if name in given or name in "wr" else "" for name in names)]
    outputs = ["y", "last", *(["cell"] if kind == "LSTM" else [])]
    node = helper.make_node(kind, inputs, outputs, hidden_size=HIDDEN, **attributes)
    stored = [tensor(name, arrays[name]) for name in inputs[1:] if name]
    return model(
        [node],
        [value("x", (TIME, BATCH, SIZE))],
        [value(name, None) for name in outputs],
        initializers=stored,
        opset=14,
    )


def _check(kind: str, given: set[str], **attributes: Any) -> None:
    rng = np.random.default_rng(3)
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    arrays = _arrays(kind, directions, rng)
    proto = _model(kind, given, arrays, **attributes)
    x = rng.standard_normal((TIME, BATCH, SIZE)).astype(np.float32)
    expected = onnxruntime_outputs(proto, x)
    for result, wanted in zip(run(proto, x), expected, strict=True):
        assert result.shape == wanted.shape
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("given", ["", "b", "b lengths", "b h c", "b lengths h c"])
@pytest.mark.parametrize("kind", list(GATES))
def test_directions_and_optional_inputs(kind: str, given: str, direction: str) -> None:
    _check(kind, set(given.split()), direction=direction)


@pytest.mark.parametrize("given", ["p", "b p", "b lengths h c p"])
def test_peepholes(given: str) -> None:
    _check("LSTM", set(given.split()))


@pytest.mark.parametrize("given", ["", "b lengths h c", "b p"])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_input_forget(given: str, direction: str) -> None:
    _check("LSTM", set(given.split()), input_forget=1, direction=direction, clip=0.7)


def test_input_forget_with_another_activation_is_refused() -> None:
    with pytest.raises(UnsupportedOperationError, match="input_forget needs the activation Sig"):
        _check("LSTM", {"b"}, input_forget=1, activations=["HardSigmoid", "Tanh", "Tanh"])


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("given", ["", "b", "b lengths h"])
def test_linear_before_reset(given: str, direction: str) -> None:
    _check("GRU", set(given.split()), linear_before_reset=1, direction=direction)


@pytest.mark.parametrize("kind", list(GATES))
def test_clip(kind: str) -> None:
    _check(kind, {"b"}, clip=0.3)


@pytest.mark.parametrize(
    ("kind", "activations", "alpha", "beta"),
    [
        ("RNN", ["Relu"], None, None),
        ("RNN", ["LeakyRelu"], [0.2], None),
        ("RNN", ["HardSigmoid"], [0.3], [0.4]),
        ("RNN", ["Softsign"], None, None),
        ("RNN", ["Elu"], [0.7], None),
        ("GRU", ["HardSigmoid", "Softsign"], [0.3], [0.4]),
        ("LSTM", ["HardSigmoid", "Relu", "Tanh"], [0.3], [0.4]),
    ],
)
def test_activations(
    kind: str, activations: list[str], alpha: list[float] | None, beta: list[float] | None
) -> None:
    attributes: dict[str, Any] = {"activations": activations}
    if alpha:
        attributes["activation_alpha"] = alpha
    if beta:
        attributes["activation_beta"] = beta
    _check(kind, {"b"}, **attributes)


@pytest.mark.parametrize("kind", list(GATES))
def test_batch_first(kind: str) -> None:
    """Layout 1 gives the numbers of layout 0 with axes exchanged (ONNX Runtime lacks it)."""
    rng = np.random.default_rng(5)
    arrays = _arrays(kind, 1, rng)
    x = rng.standard_normal((TIME, BATCH, SIZE)).astype(np.float32)
    expected = onnxruntime_outputs(_model(kind, {"b", "h", "c"}, arrays), x)
    for name in ("h", "c"):
        if name in arrays:
            arrays[name] = arrays[name].transpose(1, 0, 2)
    proto = _model(kind, {"b", "h", "c"}, arrays, layout=1)
    shape = proto.graph.input[0].type.tensor_type.shape
    shape.dim[0].dim_value, shape.dim[1].dim_value = BATCH, TIME
    y, *states = run(proto, x.transpose(1, 0, 2))
    np.testing.assert_allclose(y, expected[0].transpose(2, 0, 1, 3), rtol=1e-4, atol=1e-5)
    for state, wanted in zip(states, expected[1:], strict=True):
        np.testing.assert_allclose(state, wanted.transpose(1, 0, 2), rtol=1e-4, atol=1e-5)


def test_dynamic_batch_and_time() -> None:
    rng = np.random.default_rng(6)
    arrays = _arrays("LSTM", 2, rng)
    proto = _model("LSTM", {"b"}, arrays, direction="bidirectional")
    shape = proto.graph.input[0].type.tensor_type.shape
    shape.dim[0].dim_param, shape.dim[1].dim_param = "time", "batch"
    for time, batch in ((1, 1), (7, 2)):
        x = rng.standard_normal((time, batch, SIZE)).astype(np.float32)
        for result, wanted in zip(run(proto, x), onnxruntime_outputs(proto, x), strict=True):
            np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)


def test_weights_as_inputs() -> None:
    """Weights that are only known at run time are reordered then."""
    rng = np.random.default_rng(8)
    arrays = _arrays("LSTM", 1, rng)
    proto = _model("LSTM", {"b"}, arrays)
    for name in ("w", "r", "b"):
        proto.graph.input.append(value(name, arrays[name].shape, TensorProto.FLOAT))
    del proto.graph.initializer[:]
    x = rng.standard_normal((TIME, BATCH, SIZE)).astype(np.float32)
    feeds = [x, arrays["w"], arrays["r"], arrays["b"]]
    for result, wanted in zip(run(proto, *feeds), onnxruntime_outputs(proto, *feeds), strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)


def _cut(kind: str, arrays: dict[str, np.ndarray], lengths: np.ndarray, **attributes: Any) -> Any:
    """Answers of a model without lengths, which is asked for each item up to its end."""
    count, states = len(arrays["w"]), 2 if kind == "LSTM" else 1
    y = np.zeros((TIME, count, BATCH, HIDDEN), np.float32)
    lasts = [arrays[name].copy() for name in "hc"[:states]]
    for item, length in enumerate(np.clip(lengths, 0, TIME)):
        if not length:
            continue
        own = {name: a[:, item : item + 1] if name in "hc" else a for name, a in arrays.items()}
        proto = _model(kind, {"b", "h", "c", *("p" if "p" in arrays else "")}, own, **attributes)
        x = arrays["x"][:length, item : item + 1]
        for dim, size in zip(proto.graph.input[0].type.tensor_type.shape.dim, x.shape, strict=True):
            dim.dim_value = size
        part, *ends = onnxruntime_outputs(proto, x)
        y[:length, :, item] = part[:, :, 0]
        for last, end in zip(lasts, ends, strict=True):
            last[:, item] = end[:, 0]
    return [y, *lasts]


FORMS = [
    *((kind, {"direction": d}) for kind in GATES for d in ("forward", "reverse", "bidirectional")),
    ("GRU", {"linear_before_reset": 1, "direction": "bidirectional"}),
    ("LSTM", {"peepholes": 1, "direction": "bidirectional"}),
    ("LSTM", {"peepholes": 1, "direction": "reverse", "clip": 0.4}),
    ("GRU", {"direction": "bidirectional", "clip": 0.4}),
    ("RNN", {"direction": "bidirectional", "activations": ["Relu", "Relu"]}),
    ("LSTM", {"input_forget": 1}),
    ("GRU", {"activations": ["HardSigmoid", "Softsign"], "activation_alpha": [0.3]}),
]


@pytest.mark.parametrize("wanted", ["all", "hidden"])
@pytest.mark.parametrize(("kind", "attributes"), FORMS)
def test_lengths_known_at_run_time(kind: str, attributes: dict[str, Any], wanted: str) -> None:
    """What lies behind an item's end is not looked at; lengths beyond the time are cut."""
    attributes = dict(attributes)
    rng = np.random.default_rng(7)
    arrays = _arrays(kind, 2 if attributes.get("direction") == "bidirectional" else 1, rng)
    if not attributes.pop("peepholes", 0):
        arrays.pop("p", None)
    given = {"b", "lengths", "h", "c", *("p" if "p" in arrays else "")}
    proto = _model(kind, given, arrays, **attributes)
    (stored,) = (i for i in proto.graph.initializer if i.name == "lengths")
    proto.graph.initializer.remove(stored)
    proto.graph.input.append(value("lengths", (BATCH,), TensorProto.INT32))
    if wanted == "hidden":
        del proto.graph.output[2:]
    for lengths in ([5, 2, 4], [0, 1, 5], [5, 5, 5], [9, -1, 3], [5, 2, 4]):
        known = np.array(lengths, np.int32)
        arrays["x"] = rng.standard_normal((TIME, BATCH, SIZE)).astype(np.float32)
        answers = _cut(kind, arrays, known, **attributes)
        for item, length in enumerate(np.clip(known, 0, TIME)):
            arrays["x"][length:, item] = np.nan
        results = run(proto, arrays["x"], known)
        assert len(results) == len(proto.graph.output)
        for result, answer in zip(results, answers, strict=False):
            np.testing.assert_allclose(result, answer, rtol=1e-4, atol=1e-5)
