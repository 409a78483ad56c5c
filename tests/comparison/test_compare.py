"""`polydevice compare`: a device beside other runtimes, with faults that are put in on purpose."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

from polydevice import Core, compare, opset
from polydevice.cli import main
from polydevice.comparison.values import read_values, write_values
from polydevice.errors import OptionValueError
from polydevice.node import Node
from polydevice.ops.math import Sin
from polydevice_cpu import implement

REFERENCES = ["CPU", "onnxruntime", "openvino"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Write x [2, 5] → MatMul → Add → Relu → Sin → Mul, and integers beside it."""
    rng = np.random.default_rng(3)
    constants = {
        "w": rng.standard_normal((5, 7)).astype(np.float32),
        "b": rng.standard_normal(7).astype(np.float32),
        "two": np.float32(2),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Add", ["product", "b"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["positive"]),
        helper.make_node("Sin", ["positive"], ["wave"]),
        helper.make_node("Mul", ["wave", "two"], ["y"]),
        helper.make_node("ArgMax", ["y"], ["best"], axis=1),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "waves",
        [info("x", TensorProto.FLOAT, [2, 5])],
        [info("y", TensorProto.FLOAT, [2, 7]), info("best", TensorProto.INT64, [2, 1])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    path = tmp_path / "waves.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture
def wrong_sine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the CPU device's sine wrong in one element, and infinite in another."""
    right = implement.find_implementation(Sin)
    assert right is not None

    def wrong(op: Sin, values: np.ndarray) -> np.ndarray:
        answer = np.array(right(op, values))
        answer[0, 3] += 0.25
        answer[1, 1] = np.inf
        return answer

    monkeypatch.setitem(implement._TABLE, Sin, wrong)
    monkeypatch.delitem(implement._WRITERS, Sin)


@pytest.mark.parametrize("against", REFERENCES)
def test_equal(model: Path, device: str, against: str) -> None:
    found = compare(model, device, against=against, alone=True)
    assert found.is_equal
    assert found.first is None
    assert found.guilty is None
    assert found.first_with("nan") is None
    assert {layer.layer for layer in found.outputs} == {"y", "best"}
    assert any(layer.layer == "y" and layer.own is not None for layer in found.layers)


def test_the_first_layer_that_differs(model: Path, wrong_sine: None) -> None:
    found = compare(model, "CPU", against="onnxruntime", alone=True)
    assert not found.is_equal
    first, guilty, infinite = found.first, found.guilty, found.first_with("infinite")
    assert first is not None
    assert guilty is not None
    assert first.operation == "Sin"
    assert first.difference is not None
    assert first.difference.beyond == 2
    assert first.difference.index == (1, 1)
    assert guilty.layer == first.layer
    assert infinite is not None
    assert infinite.layer == first.layer
    (output,) = [output for output in found.outputs if output.layer == "y"]
    assert output.is_beyond
    # what follows differs, but not by its own fault
    (last,) = [layer for layer in found.layers if layer.layer == "y"]
    assert last.is_beyond
    assert not last.is_guilty


def test_a_reproduction_runs_by_itself(model: Path, wrong_sine: None, tmp_path: Path) -> None:
    folder = tmp_path / "found"
    found = compare(model, "CPU", against="onnxruntime", reproduction=folder)
    assert found.reproduction == str(folder)
    assert (folder / "model.xml").is_file()
    # in a process of its own the sine is right, and the script says so
    command = [sys.executable, str(folder / "reproduce.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "equal"
    with np.load(folder / "expected.npz") as expected, np.load(folder / "inputs.npz") as inputs:
        np.testing.assert_allclose(expected["output_0"], np.sin(inputs["input_0"]), atol=1e-6)


@pytest.mark.usefixtures("needs_gpu")
def test_names_of_a_model_are_no_code(model: Path, wrong_sine: None, tmp_path: Path) -> None:
    with Core() as core:
        network = core.read_network(model)
        target = tmp_path / "written"
        code = f"__import__('pathlib').Path({str(target)!r}).touch()"
        network.node("wave").name = f'"""; {code}; """'
        folder = tmp_path / "found"
        assert compare(network, "CPU", against="GPU", reproduction=folder, core=core).reproduction
    command = [sys.executable, str(folder / "reproduce.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "touch()" in done.stdout
    assert not target.exists()


def test_an_output_that_is_called_as_an_input_is(device: str) -> None:
    x = opset.parameter([2, 3], name="x")
    network = opset.network("same", {"x": opset.relu(x)})
    found = compare(network, device, against="CPU")
    assert [output.layer for output in found.outputs] == ["x"]
    assert found.is_equal


def test_outputs_that_a_reference_lacks_are_not_called_equal(model: Path) -> None:
    found = compare(model, "CPU")
    unknown = replace(found.outputs[0], difference=None)
    assert not replace(found, outputs=(unknown,)).is_equal


def test_no_reproduction_where_nothing_differs(model: Path, tmp_path: Path) -> None:
    assert compare(model, "CPU", reproduction=tmp_path / "found").reproduction == ""
    assert not (tmp_path / "found").exists()


def test_groups_hold_few_values_at_once(
    model: Path, device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a value in each group, on disk is what steps to come read, and nothing in the end."""
    whole = compare(model, device)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    on_disk = []

    def progress(done: int, total: int, name: str) -> None:
        on_disk.append(len(list(tmp_path.glob("polydevice-compare-*/*"))))

    few = compare(model, device, group_bytes=1, alone=True, progress=progress)
    assert [layer.layer for layer in few.layers] == [layer.layer for layer in whole.layers]
    assert few.is_equal and few.guilty is None
    assert all(layer.own is not None for layer in few.layers)
    assert 1 <= max(on_disk) <= 2
    assert not list(tmp_path.glob("polydevice-compare-*"))


def test_inputs_and_a_network(model: Path) -> None:
    x = np.random.default_rng(9).standard_normal((4, 5)).astype(np.float32)
    with Core() as core:
        network = core.read_network(model)
        found = compare(network, "CPU", shapes={"x": (4, 5)}, inputs={"x": x}, core=core)
        assert found.outputs[0].difference is not None
        assert found.outputs[0].difference.shape == (4, 7)
        assert list(network.inputs["x"].shape or ()) == [2, 5]  # the caller's is as it was
        with pytest.raises(OptionValueError, match="ONNX files only"):
            compare(network, "CPU", against="onnxruntime", core=core)
    found = compare(
        model, "CPU", against="openvino", shapes={"x": (4, 5)}, inputs={"x": x}, bound=1e-5
    )
    assert found.is_equal


@pytest.mark.usefixtures("needs_gpu")
@pytest.mark.parametrize("seed", [0, 1])
def test_what_is_kept_in_halves_is_seen_as_such(tmp_path: Path, seed: int) -> None:
    """x² of small x is 0 in f16, which its logarithm tells; f32 keeps it."""
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["square"]),
        helper.make_node("MaxPool", ["square"], ["most"], kernel_shape=[3]),
        helper.make_node("Log", ["most"], ["y"]),
    ]
    info = helper.make_tensor_value_info
    shape = [1, 2, 9]
    graph = helper.make_graph(
        nodes, "g", [info("x", TensorProto.FLOAT, shape)], [info("y", TensorProto.FLOAT, None)]
    )
    opsets = [helper.make_opsetid("", 17)]
    content = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    rng = np.random.default_rng(seed)
    x = {"x": rng.uniform(1e-6, 1e-5, shape).astype(np.float32)}
    assert compare(content, "GPU", inputs=x, against="onnxruntime", precision="f32").is_equal
    found = compare(content, "GPU", inputs=x, against="onnxruntime", precision="f16", alone=True)
    assert not found.is_equal
    assert found.first is not None
    assert found.first.operation == "Multiply"
    assert found.guilty is not None
    infinite = found.first_with("infinite")
    assert infinite is not None
    assert infinite.operation == "Log"


def test_what_cannot_be(model: Path) -> None:
    with pytest.raises(OptionValueError, match="bound -1"):
        compare(model, "CPU", bound=-1)
    with pytest.raises(OptionValueError, match="no key to compute in 'f16'"):
        compare(model, "CPU", precision="f16")


def test_command(model: Path, wrong_sine: None, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["compare", str(model), "-d", "CPU", "--against", "onnxruntime"]
    assert main([*arguments, "--alone"]) == 1
    said = capsys.readouterr().out
    assert "First value beyond the bound\n! " in said
    assert "Sin wave" in said
    assert "First infinity that the reference does not have" in said
    assert main([*arguments, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["is_equal"] is False
    assert {output["layer"] for output in told["outputs"]} == {"y", "best"}


@pytest.mark.parametrize("given", ["PERF_COUNT", "=YES", ""])
@pytest.mark.parametrize("command", ["compare", "explain", "tune --file f"])
def test_settings_that_are_none_are_refused(
    model: Path, capsys: pytest.CaptureFixture[str], command: str, given: str
) -> None:
    name, *more = command.split()
    with pytest.raises(SystemExit):
        main([name, str(model), *more, "-c", given])
    assert f"{given!r} is no KEY=VALUE" in capsys.readouterr().err


def test_command_on_equal_sides(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = model.parent / "found"
    arguments = ["-d", "CPU", "--all", "--shape", "[3,5]", "--bisect", str(folder)]
    assert main(["compare", str(model), *arguments]) == 0
    said = capsys.readouterr().out
    assert "First value beyond the bound\n  none" in said
    assert "`--bisect` writes nothing" in said and not folder.exists()


def test_sizes_of_given_inputs_and_names_with_commas(device: str) -> None:
    """A size that only the array says; layers whose names hold commas are compared too."""
    x = opset.parameter([2, None, None], "f32", name="x")
    y = opset.sin(opset.relu(x, name="a,b"), name="c,d,e")
    network = opset.network("n", {"y": opset.softmax(opset.exp(y, name="a"), axis=2, name="last")})
    value = np.random.default_rng(4).standard_normal((2, 3, 5)).astype(np.float32)
    found = compare(network, device, inputs={"x": value})
    assert found.is_equal and found.outputs[0].difference.shape == (2, 3, 5)
    named = {name for layer in found.layers for name in (layer.layer, *layer.fused)}
    assert {"a,b", "c,d,e", "a", "last"} <= named
    with pytest.raises(OptionValueError, match="no input 'z'; inputs: x"):
        compare(network, device, inputs={"z": value})


def test_values_of_every_type_are_written_without_pickles(tmp_path: Path) -> None:
    texts = np.array([["a", "ü,\n"], ["", "c\0"]], object)
    values = {
        "texts": texts,
        "bf16": np.arange(3).astype(ml_dtypes.bfloat16),
        "f8": np.arange(4).reshape(2, 2).astype(ml_dtypes.float8_e4m3fn),
        "f32": np.float32(np.pi),
        "truth": np.array([True, False]),
        "none": np.zeros((0, 3), np.int64),
    }
    write_values(tmp_path / "v.npz", {name: np.asarray(value) for name, value in values.items()})
    found = read_values(tmp_path / "v.npz")
    assert found.keys() == values.keys()
    for name, value in values.items():
        assert found[name].dtype == np.asarray(value).dtype and found[name].shape == np.shape(value)
        assert (found[name] == value).all(), name


MODULE = """
import polydevice

@polydevice.operation("PlusOne", domain="tests.reproduction", types="same")
def plus_one(x):
    return x + 1

@plus_one.opencl
def _(x):
    '''return x + 1.5f;'''
"""


@pytest.mark.full
def test_a_reproduction_knows_the_users_operations(tmp_path: Path, monkeypatch) -> None:
    """In another process, which cannot import the module that defines them."""
    with Core() as core:
        if "GPU" not in core.available_devices:
            pytest.skip("no GPU here")
    (tmp_path / "plus").mkdir()
    (tmp_path / "plus" / "plus_one_operation.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path / "plus"))
    module = importlib.import_module("plus_one_operation")
    x = opset.parameter([3], "f32", name="x")
    plus = Node("plus", module.plus_one.op(), [opset.transpose(x, [0])])
    network = opset.network("n", {"y": opset.softmax(plus.output, axis=0)})
    found = compare(network, "GPU", reproduction=tmp_path / "found")
    assert found.reproduction and found.guilty is not None
    assert list((tmp_path / "found" / "kernels").glob("*.cl"))
    done = subprocess.run(
        [sys.executable, tmp_path / "found" / "reproduce.py"],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 1 and "relative" in done.stdout, done.stderr


@pytest.mark.full
def test_memory_follows_the_group(tmp_path: Path) -> None:
    """In a process of its own, with no collections but those that `compare` asks for."""
    program = """
import gc, resource
import numpy as np
from polydevice import Core, compare, opset
gc.disable()
x = opset.parameter([1, 16, 256, 256], "f32", name="x")  # 4 MiB, like every value
value = x
for _ in range(8):
    value, _ = opset.max_pool(value, kernel=[3, 3], pads_begin=[1, 1], pads_end=[1, 1])
network = opset.network("pools", {"y": value})
with Core() as core:
    core.load_network(network, "CPU").infer({"x": np.zeros((1, 16, 256, 256), np.float32)})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = compare(network, "CPU", group_bytes=1, core=core)
    assert found.is_equal and len(found.layers) == 8, found
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 16 * 4096  # KiB: 16 values, 70 and more where runs are kept
