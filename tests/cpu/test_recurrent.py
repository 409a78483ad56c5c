"""Which recurrent layers NumPy need not compute; that answers are right is tested in tests/onnx."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from polydevice_cpu.lowering.recurrent import loop
from polydevice_cpu.onednn.library import library
from polydevice_cpu.plan.step import MACHINE_CODE
from tests.cpu.loading import image, load
from tests.cpu.models import answer, build

pytestmark = pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine")

TIME, BATCH, SIZE, HIDDEN = 6, 3, 4, 5
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def _explanation(core, kind, *names, count=1, **attributes):
    """What becomes of a layer whose lengths, if it has any, are known at run time."""
    gates = GATES[kind]
    weights = {
        "w": image(1, count, gates * HIDDEN, SIZE),
        "r": image(2, count, gates * HIDDEN, HIDDEN),
        "p": image(3, count, 3 * HIDDEN),
    }
    inputs = {"x": (TIME, BATCH, SIZE), "n": (BATCH,)}
    nodes = [("Cast", ["n"], ["lengths"], {"to": 6})] if "lengths" in names else []
    given = ["x", "w", "r", "", *names]
    nodes.append((kind, given, ["y", "h"], {"hidden_size": HIDDEN, **attributes}))
    used = {name: weights[name] for name in given if name in weights}
    needed = inputs if "lengths" in names else {"x": inputs["x"]}
    network = load(core, build(nodes, needed, ["y", "h"], used, 14))
    network.infer({name: np.ones(shape, np.float32) for name, shape in needed.items()})
    (line,) = (line for line in network.explain().splitlines() if f" {kind}Sequence" in line)
    return line


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", list(GATES))
def test_lengths_known_at_run_time_need_no_steps_in_numpy(core, kind, direction):
    count = 2 if direction == "bidirectional" else 1
    line = _explanation(core, kind, "lengths", count=count, direction=direction)
    assert "runs by" in line
    assert "numpy" not in line


def test_peepholes_need_no_steps_in_numpy(core):
    assert "numpy" not in _explanation(core, "LSTM", "", "", "", "p")
    assert "numpy" not in _explanation(core, "LSTM", "lengths", "", "", "p")


@pytest.mark.parametrize("is_there", [True, False])
def test_what_onednn_lacks_is_computed_by_machine_code_or_numpy(core, monkeypatch, is_there):
    if not is_there:
        monkeypatch.setattr(loop, "has_vectors", lambda: False)
    code = MACHINE_CODE if loop.has_vectors() else "numpy"
    assert code in _explanation(core, "LSTM", clip=0.5)
    assert code in _explanation(core, "GRU", activations=["HardSigmoid", "Tanh"])


@pytest.mark.parametrize("kind", [*GATES, "GRU before reset"])
def test_without_machine_code_onednn_computes_what_it_can(core, monkeypatch, kind):
    monkeypatch.setattr(loop, "has_vectors", lambda: False)
    kind, _, late = kind.partition(" ")
    attributes = {"linear_before_reset": 1} if late else {}
    weights = {
        "w": image(1, 1, GATES[kind] * HIDDEN, SIZE),
        "r": image(2, 1, GATES[kind] * HIDDEN, HIDDEN),
        "b": image(3, 1, 2 * GATES[kind] * HIDDEN),
    }
    node = (kind, ["x", "w", "r", "b"], ["y", "h"], {"hidden_size": HIDDEN, **attributes})
    model, x = build([node], {"x": (TIME, BATCH, SIZE)}, ["y", "h"], weights, 14), {}
    x["x"] = image(4, TIME, BATCH, SIZE)
    network = load(core, model)
    for found, wanted in zip(network.infer(x).values(), answer(model, x), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    (line,) = (line for line in network.explain().splitlines() if f" {kind}Sequence" in line)
    assert MACHINE_CODE not in line
    assert "numpy" not in line


def test_weights_are_packed_for_processors_without_avx(tmp_path):
    """There oneDNN lays those of an LSTM in blocks, and reorders no transposed view to these."""
    gates, size, hidden = 4, 33, 16
    weights = {
        "w": image(1, 1, gates * hidden, size) / 6,
        "r": image(2, 1, gates * hidden, hidden) / 4,
        "n": np.array([1, 1, 1, 1, 1, 0], np.int32),
    }
    node = ("LSTM", ["x", "w", "r", "", "n"], ["y", "h", "c"], {"hidden_size": hidden})
    model = build([node], {"x": [1, 6, size]}, ["y", "c"], weights, 14)
    x, file = image(3, 1, 6, size), tmp_path / "lstm.onnx"
    file.write_bytes(model)
    np.save(tmp_path / "x.npy", x)
    script = (
        "import sys, numpy as np\n"
        "from polydevice import Core\n"
        "model, x, y = sys.argv[1:]\n"
        "with Core() as core:\n"
        "    found = core.load_network(core.read_network(model), 'CPU').infer({'x': np.load(x)})\n"
        "    np.savez(y, **found)\n"
    )
    files = [str(file), str(tmp_path / "x.npy"), str(tmp_path / "y.npz")]
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "SSE41"}
    subprocess.run([sys.executable, "-c", script, *files], env=environment, check=True)
    with np.load(files[2]) as found:
        for name, wanted in zip(("y", "c"), answer(model, {"x": x}), strict=True):
            np.testing.assert_allclose(found[name], wanted, rtol=1e-4, atol=1e-5)
