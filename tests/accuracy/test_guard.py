"""ACCURACY_GUARD on devices: what it keeps, that outputs are then right, and that it is kept.

Right answers are NumPy's in f64. The networks are made so that one step breaks: means of squares
that are below f16's smallest number, and sums that cancel, of which bf16 has 8 bits.
"""

from __future__ import annotations

import io
import logging
import re
import zipfile

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice import Core, opset
from polydevice.accuracy import is_trying
from polydevice.accuracy.calibration import digest, given_samples, random_samples
from polydevice.errors import OptionValueError
from polydevice.network.kept_layers import KEEP_F32, KeptLayers
from polydevice_cpu.onednn.library import library

rng = np.random.default_rng(3)
MIX = rng.uniform(0.5, 1, (6, 5)).astype(np.float32)
LAST = rng.standard_normal((5, 4)).astype(np.float32)


@pytest.fixture
def core():
    with Core() as made:
        yield made


@pytest.fixture
def gpu(core):
    if "GPU" not in core.available_devices:
        pytest.skip("no GPU here")
    return {"INFERENCE_PRECISION_HINT": "f16"}


def underflow():
    """Logarithms of powers: 1e-7 times a mean of squares is nothing in f16."""
    x = opset.parameter([2, 6, 40], "f32", name="x")
    power = opset.reduce_mean(
        opset.multiply(opset.multiply(x, x), np.float32(1e-8)), [2], name="power"
    )
    mixed = opset.mat_mul(power, MIX, name="mixed")
    loud = opset.log(mixed, name="loud")
    return opset.network(
        "underflow", {"y": opset.softmax(opset.mat_mul(loud, LAST, name="last"), axis=1)}
    )


def underflow_right(x):
    x = x.astype(np.float64)
    scores = np.log((x * x * 1e-8).mean(2) @ MIX.astype(np.float64)) @ LAST.astype(np.float64)
    powers = np.exp(scores - scores.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def line_of(executable, layer):
    found = executable.explain().splitlines()
    return next(line for line in found if line.startswith(f"{layer} "))


def error(answer, right):
    return np.abs(answer - right).max() / np.abs(right).max()


@pytest.mark.full
def test_a_gpu_keeps_the_step_whose_values_f16_does_not_have(core, gpu, caplog, tmp_path) -> None:
    network = underflow()
    x = rng.standard_normal((2, 6, 40)).astype(np.float32)
    right = underflow_right(x)
    plain = core.load_network(network, "GPU", gpu).infer({"x": x})["y"]
    assert not error(plain, right) < 0.1
    core.set_config({"CACHE_DIR": str(tmp_path)})
    with caplog.at_level(logging.INFO, "polydevice.accuracy"):
        guarded = core.load_network(network, "GPU", {**gpu, "ACCURACY_GUARD": "1e-2"})
    for _ in range(2):
        assert error(guarded.infer({"x": x})["y"], right) < 1e-2
    said = guarded.explain().splitlines()
    assert any(line.startswith("accuracy guard: ") and "kept in f32" in line for line in said)
    kept = [line for line in said if line.startswith("kept in f32: ")]
    assert 1 <= len(kept) <= 4 and any("power" in line for line in kept)
    assert sum("trial" in record.getMessage() for record in caplog.records) > 2
    assert not any(KEEP_F32 in node.rt_info for node in network.nodes())
    assert not is_trying()

    caplog.clear()
    with caplog.at_level(logging.INFO, "polydevice.accuracy"):
        again = core.load_network(network, "GPU", {**gpu, "ACCURACY_GUARD": "1e-2"})
    assert not caplog.records  # the answer came with the compiled network
    np.testing.assert_array_equal(again.infer({"x": x})["y"], guarded.infer({"x": x})["y"])
    assert [line for line in again.explain().splitlines() if line in kept] == kept


def test_a_network_within_the_bound_stays_as_it_is(core, gpu) -> None:
    x = opset.parameter([3, 5], "f32", name="x")
    network = opset.network("calm", {"y": opset.mat_mul(opset.relu(x), LAST)})
    guarded = core.load_network(network, "GPU", {**gpu, "ACCURACY_GUARD": "1e-2"})
    value = rng.standard_normal((3, 5)).astype(np.float32)
    plain = core.load_network(network, "GPU", gpu)
    np.testing.assert_array_equal(guarded.infer({"x": value})["y"], plain.infer({"x": value})["y"])
    assert "0 of 2 steps kept in f32" in guarded.explain() or "0 of 1 steps" in guarded.explain()


@pytest.mark.full
def test_what_breaks_on_few_inputs_is_found(core, gpu) -> None:
    """A square that overflows beyond 3.15: of 16 random inputs none does, of 168 some do."""
    x = opset.parameter([1, 1, 1], "f32", name="x")
    square = opset.multiply(opset.multiply(x, x), np.float32(65504 / 3.15**2))
    power = opset.reduce_sum(square, [2], name="power")
    mixed = opset.mat_mul(power, np.ones((1, 5), np.float32), name="mixed")
    network = opset.network("rare", {"y": opset.mat_mul(opset.log(mixed), LAST)})
    large = {"x": np.full((1, 1, 1), 3.3, np.float32)}
    assert not np.isfinite(core.load_network(network, "GPU", gpu).infer(large)["y"]).all()
    first = [s["x"].max() for seed in range(4) for s in random_samples(network, seed)]
    assert np.abs(first).max() < 3.14
    guarded = core.load_network(network, "GPU", {**gpu, "ACCURACY_GUARD": "1e-2"})
    right = np.full((1, 5), np.log(65504 / 3.15**2 * 3.3**2)) @ LAST
    assert error(guarded.infer(large)["y"], right) < 1e-2
    assert "power" in guarded.explain().partition("kept in f32: ")[2]


@pytest.mark.full
def test_inputs_decide_and_are_part_of_what_is_cached(core, gpu, caplog, tmp_path) -> None:
    """With large inputs nothing underflows: the same network needs nothing kept."""
    network = underflow()
    core.set_config({"CACHE_DIR": str(tmp_path / "cache")})
    file = tmp_path / "x.npy"
    config = {**gpu, "ACCURACY_GUARD": "2e-2", "ACCURACY_GUARD_INPUTS": str(file)}
    with pytest.raises(OptionValueError, match="has no inputs"):
        core.load_network(network, "GPU", config)
    np.save(file, 1e3 * rng.standard_normal((2, 6, 40)).astype(np.float32))
    assert "0 of" in core.load_network(network, "GPU", config).explain()
    np.save(file, rng.standard_normal((2, 6, 40)).astype(np.float32))
    explained = core.load_network(network, "GPU", config).explain()
    assert "accuracy guard: 0 of" not in explained and "kept in f32: power" in explained


@pytest.mark.full
def test_parts_on_a_gpu_are_guarded_as_a_whole_and_members_one_by_one(core, gpu) -> None:
    x = rng.standard_normal((2, 6, 40)).astype(np.float32)
    for device in ("HETERO:GPU,CPU", "AUTO:GPU", "MULTI:GPU"):
        guarded = core.load_network(underflow(), device, {**gpu, "ACCURACY_GUARD": "1e-2"})
        assert error(guarded.infer({"x": x})["y"], underflow_right(x)) < 1e-2, device
        assert "kept in f32: power" in guarded.explain(), device


@pytest.mark.full
@pytest.mark.parametrize("seed", range(3))
def test_any_layers_can_be_kept(core, gpu, seed) -> None:
    """Convolutions, views, concatenations, poolings and sums, each in f32 or f16 at random."""
    random = np.random.default_rng(seed)
    w = [
        random.standard_normal(s).astype(np.float32) / 4
        for s in ((8, 3, 3, 3), (8, 8, 1, 1), (16, 9))
    ]
    x = opset.parameter([2, 3, 11, 13], "f32", name="x")
    a = opset.relu(
        opset.convolution(x, w[0], pads_begin=(1, 1), pads_end=(1, 1), name="a"), name="ra"
    )
    b = opset.sigmoid(opset.convolution(a, w[1], name="b"), name="rb")
    joined = opset.concat(a, b, axis=1, name="joined")
    small = opset.max_pool(joined, kernel=(2, 2), strides=(2, 2), name="small")
    small = small[0] if isinstance(small, list) else small
    flat = opset.reshape(small, [2, 16, 30], special_zero=False, name="flat")
    left, right = opset.split(flat, 1, num_splits=2, name="halves")
    total = opset.add(
        opset.transpose(left, [0, 2, 1], name="turned"), opset.transpose(right, [0, 2, 1])
    )
    mean = opset.reduce_mean(total, [2], name="mean")
    network = opset.network(
        "mixed", {"total": total, "mean": mean, "soft": opset.softmax(flat, axis=2)}
    )
    value = random.standard_normal((2, 3, 11, 13)).astype(np.float32)
    exact = core.load_network(network, "CPU").infer({"x": value})
    for node in network.nodes():
        if random.random() < 0.5:
            node.rt_info[KEEP_F32] = "by chance"
    executable = core.load_network(network, "GPU", gpu)
    for _ in range(2):
        found = executable.infer({"x": value})
        for name, want in exact.items():
            assert error(found[name], want) < 5e-3, name


def cancelling():
    x = opset.parameter([4, 6], "f32", name="x")
    first = opset.mat_mul(x, MIX, name="first")
    centred = opset.subtract(first, (1000 * MIX.sum(0)).astype(np.float32), name="centred")
    last = opset.mat_mul(opset.tanh(centred), LAST, name="last")
    return opset.network("cancelling", {"y": last})


def test_a_cpu_in_bf16_keeps_the_product_that_cancels(core, tmp_path) -> None:
    if "BF16" not in core.get_metric("CPU", "OPTIMIZATION_CAPABILITIES"):
        pytest.skip("no bfloat16 here")
    x = (1000 + rng.standard_normal((4, 6))).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    wide = x.astype(np.float64) @ MIX.astype(np.float64)
    right = np.tanh(wide - (1000 * MIX.sum(0)).astype(np.float32)) @ LAST.astype(np.float64)
    config = {"ENFORCE_BF16": "YES"}
    assert error(core.load_network(cancelling(), "CPU", config).infer({"x": x})["y"], right) > 0.1
    guard = {"ACCURACY_GUARD": "2e-2", "ACCURACY_GUARD_INPUTS": str(tmp_path)}
    guarded = core.load_network(cancelling(), "CPU", {**config, **guard})
    assert error(guarded.infer({"x": x})["y"], right) < 2e-2
    explained = guarded.explain()
    assert "kept in f32: first" in explained and "kept in f32: last" not in explained


HUGE = "{'descr': '<f4', 'fortran_order': False, 'shape': (100000000000000,), }".ljust(117) + "\n"
HUGE_ARRAY = b"\x93NUMPY\x01\x00" + len(HUGE).to_bytes(2, "little") + HUGE.encode() + bytes(16)


def archive(damage=None, content=None) -> bytes:
    """Return an .npz, one of whose bytes is turned around, or one with other content."""
    made = io.BytesIO()
    if content is None:
        np.savez(made, x=np.ones((1, 4), np.float32))
    else:
        with zipfile.ZipFile(made, "w") as file:
            file.writestr("x.npy", content)
    data = bytearray(made.getvalue())
    if damage is not None:
        data[damage(data)] ^= 255
    return bytes(data)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.npz", b"PK\x03\x04garbage"),
        ("x.npz", archive()[:-30]),
        ("x.npz", archive(lambda data: data.find(b"\x93NUMPY") + 130)),
        ("x.npz", archive(lambda data: data.find(b"PK\x01\x02") + 10)),  # compressed how?
        ("x.npz", archive(content=HUGE_ARRAY)),
        ("x.npy", HUGE_ARRAY),
        ("x.npy", b"\x93NUMPY\x01\x00"),
        ("x.npy", b""),
    ],
    # Not the bytes: an archive says when it was made, and each worker makes its own.
    ids=["garbage", "cut", "changed", "compressed", "huge archive", "huge", "head", "empty"],
)
def test_damaged_inputs_are_named(tmp_path, name, content) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    network = cancelling()
    with pytest.raises(OptionValueError, match=re.escape(str(file))):
        given_samples(network, str(file))


def test_inputs_that_may_not_be_read_are_named(tmp_path, monkeypatch) -> None:
    file = tmp_path / "x.npy"
    np.save(file, np.ones(3, np.float32))

    def refused(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(file), "read_bytes", refused)
    with pytest.raises(OptionValueError, match=re.escape(str(file)) + ".*Permission denied"):
        digest(str(file))


def test_a_kept_product_of_integers_is_computed_in_floating_point(core) -> None:
    if library() is None:
        pytest.skip("needs oneDNN")
    weights = rng.integers(-127, 128, (64, 32)).astype(np.int8)
    stored = {
        "s": np.float32(0.04),
        "z": np.uint8(7),
        "w": weights,
        "ws": np.float32(0.01),
        "wz": np.int8(0),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["values"], "values"),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["weights"], "weights"),
        helper.make_node("MatMul", ["values", "weights"], ["y"], "product"),
    ]
    graph = helper.make_graph(
        nodes,
        "int8",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [8, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 32])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in stored.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    network = core.read_network(model.SerializeToString())
    x = rng.integers(0, 256, (8, 64)).astype(np.uint8)
    kernel = {}
    for case in ("integers", "kept"):
        executable = core.load_network(network, "CPU")
        kernel[case] = line_of(executable, "product")
        right = ((x.astype(np.float64) - 7) * 0.04) @ (weights * 0.01)
        assert error(executable.infer({"x": x})["y"], right) < 1e-5
        network.node("product").rt_info[KEEP_F32] = "as a test"
    floats = core.load_network(network, "CPU", {"LP_TRANSFORMS_MODE": "NO"})
    plain = line_of(floats, "product")
    assert kernel["kept"].startswith(plain.partition(";")[0])
    assert kernel["integers"] != kernel["kept"]
    assert "kept in f32: product: as a test" in executable.explain()
    again = core.import_network(executable.export(), "CPU")
    assert "kept in f32: product: as a test" in again.explain()


def test_what_is_kept_covers_the_bodies_of_loops() -> None:
    kept = KeptLayers({"loop": "why"}, frozenset({"inside"}))
    assert kept.has(["loop"]) and kept.has(["inside"]) and kept.has(["loop/3/inside"])
    assert not kept.has(["other"]) and not kept.has(["loops"]) and not KeptLayers().has(["loop"])
