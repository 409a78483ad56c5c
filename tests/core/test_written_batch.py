"""Reshape follows a new batch where the model has the old one written out."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice import Core
from polydevice.errors import ShapeError
from tests.cpu.models import answer, build


def classifier(batch: int, pattern: list[int], rng: np.random.Generator) -> bytes:
    """Convolution, Reshape to the pattern, product."""
    weights = {
        "w": rng.standard_normal((6, 3, 3, 3)).astype("f4"),
        "pattern": np.array(pattern, "i8"),
        "m": rng.standard_normal((6 * 4, 5)).astype("f4"),
    }
    nodes = [
        ("Conv", ["x", "w"], ["c"], {}),
        ("Relu", ["c"], ["r"], {}),
        ("Reshape", ["r", "pattern"], ["f"], {}),
        ("MatMul", ["f", "m"], ["y"], {}),
    ]
    return build(nodes, {"x": (batch, 3, 4, 4)}, ("y",), weights)


def reshaped(batch: int, channels: int, pattern: list[int], zeros: int = 0) -> bytes:
    nodes = [("Reshape", ["x", "pattern"], ["a"], {"allowzero": zeros}), ("Relu", ["a"], ["y"], {})]
    weights = {"pattern": np.array(pattern, "i8")}
    return build(nodes, {"x": (batch, channels, 4, 4)}, ("y",), weights)


@pytest.mark.parametrize("pattern", [[1, 24], [1, -1], [-1, 24]])
def test_as_openvino(pattern, rng) -> None:
    openvino = pytest.importorskip("openvino")
    model = classifier(1, pattern, rng)
    x = rng.standard_normal((7, 3, 4, 4)).astype("f4")
    theirs = openvino.Core().read_model(model)
    theirs.reshape([7, 3, 4, 4])
    right = openvino.compile_model(theirs, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})([x])[0]
    with Core() as core:
        network = core.read_network(model)
        network.batch_size = 7
        assert list(network.outputs["y"].shape) == [7, 5]
        np.testing.assert_allclose(
            core.load_network(network, "CPU").infer(x)["y"], right, rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize(
    ("batch", "channels", "pattern"),
    [
        (1, 3, [1, 3, 16]),
        (1, 3, [1, 12, 4]),
        (1, 3, [3, 16]),
        (1, 3, [48]),
        (2, 3, [2, 48]),
        (2, 3, [6, 16]),
        (2, 3, [1, 2, 48]),
        (5, 2, [10, 4, 4]),
    ],
)
def test_every_item_is_as_by_itself(batch, channels, pattern, rng) -> None:
    """ONNX Runtime runs the model as it is written, on as many items as it is written for."""
    model = reshaped(batch, channels, pattern)
    x = rng.standard_normal((3 * batch, channels, 4, 4)).astype("f4")
    right = [answer(model, {"x": part})[0] for part in np.split(x, 3)]
    axis = next((i for i, size in enumerate(pattern) if size != 1), 0) if batch > 1 else 0
    with Core() as core:
        network = core.read_network(model)
        network.batch_size = 3 * batch
        got = core.load_network(network, "CPU").infer(x)["y"]
        np.testing.assert_array_equal(got, np.concatenate(right, axis))
        network.reshape({"x": [batch, channels, 4, 4]})  # and back
        assert list(network.outputs["y"].shape) == list(right[0].shape)
        network.reshape({"x": [-1, channels, 4, 4]})
        loaded = core.load_network(network, "CPU")
        np.testing.assert_array_equal(loaded.infer(x)["y"], np.concatenate(right, axis))


def test_what_fits_as_it_is_written_stays(rng) -> None:
    """[1, -1] joins the items, which only a product behind it would refuse; so does OpenVINO."""
    with Core() as core:
        network = core.read_network(reshaped(1, 3, [1, -1]))
        network.batch_size = 4
        assert list(network.outputs["y"].shape) == [1, 192]


def test_what_cannot_follow_is_refused_and_changes_nothing(rng) -> None:
    with Core() as core:
        network = core.read_network(reshaped(2, 3, [3, 2, 16]))
        before = [repr(node) for node in network.nodes()]
        with pytest.raises(ShapeError, match="'a' .*96"):
            network.batch_size = 4
        with pytest.raises(ShapeError):
            network.reshape({"x": [2, 3, 4, 5]})
        assert [repr(node) for node in network.nodes()] == before


def test_the_other_reshapes_of_a_pattern_keep_it(rng) -> None:
    """One constant is the pattern of two; only one of them sees the batch."""
    weights = {"pattern": np.array([1, 48], "i8"), "k": rng.standard_normal(48).astype("f4")}
    nodes = [
        ("Reshape", ["x", "pattern"], ["a"], {}),
        ("Reshape", ["k", "pattern"], ["b"], {}),
        ("Add", ["a", "b"], ["y"], {}),
    ]
    model = build(nodes, {"x": (1, 3, 4, 4)}, ("y",), weights)
    x = rng.standard_normal((4, 3, 4, 4)).astype("f4")
    with Core() as core:
        network = core.read_network(model)
        network.batch_size = 4
        got = core.load_network(network, "CPU").infer(x)["y"]
        np.testing.assert_array_equal(got, x.reshape(4, 48) + weights["k"])


def test_bench_with_a_batch(tmp_path, rng, capsys) -> None:
    from polydevice.cli import main

    path = tmp_path / "classifier.onnx"
    path.write_bytes(classifier(1, [1, 24], rng))
    arguments = ["bench", "-m", str(path), "-d", "CPU", "-niter", "2", "-b", "3"]
    assert main(arguments) == 0
    assert "batch size: 3" in capsys.readouterr().out
