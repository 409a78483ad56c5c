"""Sessions that run: memory on a device, threads, ending a run, traces."""

from __future__ import annotations

import gc
import json
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import polydevice.compat.onnxruntime as ort
from polydevice.bounds import current_bounds
from polydevice.compat.onnxruntime.capi.onnxruntime_pybind11_state import (
    EPFail,
    Fail,
    InvalidArgument,
)
from polydevice.remote import Copies
from tests.compat.onnxruntime_models import F32, TWICE, X, model


def test_a_run_that_cannot_start_calls_back_and_loses_nothing(on_device: list[str]) -> None:
    session = ort.InferenceSession(TWICE, providers=on_device)
    outcomes: list[tuple[Any, Any, str]] = []
    more = threading.Semaphore(0)

    def done(outputs: list[Any], data: Any, error: str) -> None:
        outcomes.append((outputs, data, error))
        more.release()

    for step in range(3):
        session.run_async(None, {"x": [[1, 2]]}, done, step)
        assert more.acquire(timeout=60)
        assert outcomes[-1][:2] == ([], step)
        assert outcomes[-1][2]
    assert len(session._loaded._on_device) == 1
    session.run_async(None, {"x": X.tolist()}, done, 3)
    assert more.acquire(timeout=60)
    ((y,), data, error) = outcomes[-1]
    assert (y.tolist(), data, error) == ((X * 2).tolist(), 3, "")


def test_a_run_that_ended_keeps_nothing_of_the_callers(on_device: list[str]) -> None:
    class Data:
        """What the caller hands on."""

    session = ort.InferenceSession(TWICE, providers=on_device)
    kept = Data()
    alive, ended = weakref.ref(kept), threading.Event()
    session.run_async(None, {"x": X}, lambda *_: ended.set(), kept)
    del kept
    assert ended.wait(60)
    for _ in range(600):
        gc.collect()
        if alive() is None:
            break
        time.sleep(0.01)
    assert alive() is None


def test_memory_on_the_device_is_used_in_place(device: str) -> None:
    if not device.startswith("GPU"):
        pytest.skip("about the GPU")
    session = ort.InferenceSession(TWICE, providers=["PolydeviceGPU"])
    value = ort.OrtValue.ortvalue_from_numpy(X, "cuda", 0)
    assert (value.device_name(), value.shape(), value.data_type()) == (
        "gpu",
        [2, 3],
        "tensor(float)",
    )
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_output("y", "cuda", 0)
    session.run_with_iobinding(binding)
    (out,) = binding.get_outputs()
    assert out.device_name() == "gpu"
    assert out.numpy().tolist() == (X * 2).tolist()
    value.update_inplace(X + 1)
    target = ort.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32, "gpu")
    binding.bind_ortvalue_output("y", target)
    session.run_with_iobinding(binding)
    copies = binding._request.copies
    assert copies.with_host == 0, copies
    assert isinstance(copies, Copies)
    assert target.numpy().tolist() == (X * 2 + 2).tolist()
    (back,) = session.run_with_ort_values(["y"], {"x": target})
    assert back.numpy().tolist() == (X * 4 + 4).tolist()
    assert session.run(["y"], {"x": X})[0].tolist() == (X * 2).tolist()
    with pytest.raises(RuntimeError, match="has no address in host memory"):
        value.data_ptr()
    with pytest.raises(RuntimeError, match="belongs to the library that allocated it"):
        binding.bind_input("x", "cuda", 0, np.float32, [2, 3], 4096)


def test_host_memory_is_bound_in_place(on_device: list[str]) -> None:
    session = ort.InferenceSession(TWICE, providers=on_device)
    x, y = X.copy(), np.zeros_like(X)
    binding = session.io_binding()
    binding.bind_input("x", "cpu", 0, np.float32, x.shape, x.ctypes.data)
    binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(y))
    for step in range(3):
        x[...] = X + step
        session.run_with_iobinding(binding)
        assert y.tolist() == ((X + step) * 2).tolist()
    binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(np.zeros((3, 3), "f4")))
    with pytest.raises(RuntimeError, match="shape"):
        session.run_with_iobinding(binding)
    binding.clear_binding_outputs()
    with pytest.raises(RuntimeError, match="At least one output should be requested"):
        binding.bind_cpu_input("x", x)
        session.run_with_iobinding(binding)


def test_bound_memory_of_another_size_than_the_result(on_device: list[str]) -> None:
    value = helper.make_tensor_value_info
    rows = model(
        helper.make_node("Add", ["x", "x"], ["y"]),
        inputs=[value("x", F32, ["n", 3])],
        outputs=[value("y", F32, ["n", 3])],
    )
    session = ort.InferenceSession(rows, providers=on_device)
    binding, held = session.io_binding(), np.full((5, 3), 7, "f4")
    binding.bind_cpu_input("x", X)
    binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(held))
    with pytest.raises(RuntimeError, match=r"\[2,3\].*\[5,3\]"):
        session.run_with_iobinding(binding)
    binding.bind_cpu_input("x", np.tile(X[:1], (5, 1)))
    session.run_with_iobinding(binding)
    assert held.tolist() == np.tile(X[:1] * 2, (5, 1)).tolist()


def test_forms_of_inputs_that_onnxruntime_takes(on_device: list[str]) -> None:
    """A number as an array of one, bytes as text; and byte orders, which it confuses."""
    value = helper.make_tensor_value_info
    add = model(
        helper.make_node("Mul", ["x", "s"], ["y"]),
        inputs=[value("x", F32, [2, 3]), value("s", F32, [])],
    )
    session = ort.InferenceSession(add, providers=on_device)
    for number in (np.float32(3), np.array([3], "f4"), np.array([[3]], "f4"), 3.0):
        (y,) = session.run(None, {"x": X.astype(">f4"), "s": number})
        assert y.tolist() == (X * 3).tolist()
    with pytest.raises(InvalidArgument, match="Invalid rank for input: s"):
        session.run(None, {"x": X, "s": np.ones(2, "f4")})
    text = TensorProto.STRING
    same = model(
        helper.make_node("Identity", ["x"], ["y"]),
        inputs=[value("x", text, [2])],
        outputs=[value("y", text, [2])],
    )
    (y,) = ort.InferenceSession(same).run(None, {"x": np.array([b"a", "ü".encode()])})
    assert y.tolist() == ["a", "ü"]
    with pytest.raises(InvalidArgument, match="UTF-8"):
        ort.InferenceSession(same).run(None, {"x": np.array([b"a", b"\xff"])})
    made = helper.make_tensor_sequence_value_info("x", F32, None)
    joined = model(
        helper.make_node("ConcatFromSequence", ["x"], ["y"], axis=0),
        inputs=[made],
        outputs=[value("y", F32, [None, 3])],
    )
    session = ort.InferenceSession(joined, providers=on_device)
    assert session.run(None, {"x": [X, X]})[0].tolist() == [*X.tolist(), *X.tolist()]
    with pytest.raises(InvalidArgument, match=r"expected: \(seq\(tensor\(float\)\)\)"):
        session.run(None, {"x": X})


def test_what_is_bound_at_a_run_counts(on_device: list[str]) -> None:
    session = ort.InferenceSession(TWICE, providers=on_device)
    held = np.zeros_like(X)
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(held))
    session.run_with_iobinding(binding)
    assert held.tolist() == (X * 2).tolist()
    for device_type in ("cpu", "gpu", "cpu"):
        binding.bind_output("y", device_type)
        binding.bind_cpu_input("x", X + 1)
        session.run_with_iobinding(binding)
        (out,) = binding.get_outputs()
        assert out.numpy().tolist() == (X * 2 + 2).tolist()
        on_gpu = device_type == "gpu" and on_device == ["PolydeviceGPU"]
        assert out.device_name() == ("gpu" if on_gpu else "cpu")
        assert held.tolist() == (X * 2).tolist()
    for _ in range(2):
        binding.clear_binding_inputs()
        with pytest.raises(RuntimeError, match="Missing Input: x"):
            session.run_with_iobinding(binding)
    binding.bind_cpu_input("x", X)
    session.run_with_iobinding(binding)
    assert binding.copy_outputs_to_cpu()[0].tolist() == (X * 2).tolist()


def test_an_input_and_an_output_of_one_name_are_bound_apart(on_device: list[str]) -> None:
    through = model(
        helper.make_node("Add", ["x", "x"], ["y"]),
        outputs=[helper.make_tensor_value_info(name, F32, [2, 3]) for name in ("x", "y")],
    )
    session = ort.InferenceSession(through, providers=on_device)
    binding = session.io_binding()
    for step in range(2):
        binding.bind_cpu_input("x", X + step)
        binding.bind_output("x", "cpu")
        binding.bind_output("y", "cpu")
        session.run_with_iobinding(binding)
        x, y = binding.copy_outputs_to_cpu()
        assert x.tolist() == (X + step).tolist()
        assert y.tolist() == ((X + step) * 2).tolist()


def test_sequences_are_lists_of_arrays() -> None:
    split = model(
        helper.make_node("SplitToSequence", ["x"], ["y"], axis=1),
        outputs=[helper.make_tensor_sequence_value_info("y", F32, None)],
    )
    session = ort.InferenceSession(split)
    assert session.get_outputs()[0].type == "seq(tensor(float))"
    (parts,) = session.run(None, {"x": X})
    assert [part.tolist() for part in parts] == [X[:, i : i + 1].tolist() for i in range(3)]


def test_many_threads_share_a_session(on_device: list[str]) -> None:
    session = ort.InferenceSession(TWICE, providers=on_device)
    wrong: list[Any] = []

    def work(number: int) -> None:
        for step in range(50):
            x = X + number * 100 + step
            if session.run(None, {"x": x})[0].tolist() != (x * 2).tolist():
                wrong.append((number, step))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_failed_run_leaves_the_session_usable() -> None:
    session = ort.InferenceSession(TWICE)
    for bad in ({}, {"x": X[0]}, {"x": X.astype(int)}, {"x": [["a"] * 3] * 2}, {"x": None}):
        with pytest.raises((ValueError, ort.capi.onnxruntime_pybind11_state.InvalidArgument)):
            session.run(None, bad)
        assert session.run(None, {"x": X})[0].tolist() == (X * 2).tolist()
    options = ort.RunOptions()
    options.terminate = True
    with pytest.raises(Fail, match="terminate flag being set to true"):
        session.run(None, {"x": X}, options)


def endless() -> bytes:
    """A loop of 10**9 iterations."""
    i64, boolean = TensorProto.INT64, TensorProto.BOOL
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["still"]),
            helper.make_node("Cos", ["before"], ["after"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("number", i64, []),
            helper.make_tensor_value_info("go", boolean, []),
            helper.make_tensor_value_info("before", F32, [2, 3]),
        ],
        [
            helper.make_tensor_value_info("still", boolean, []),
            helper.make_tensor_value_info("after", F32, [2, 3]),
        ],
    )
    count = helper.make_tensor("count", i64, [], [10**9])
    return model(
        helper.make_node("Constant", [], ["count"], value=count),
        helper.make_node("Loop", ["count", "", "x"], ["y"], body=body),
    )


def test_a_run_that_does_not_end_is_terminated(on_device: list[str]) -> None:
    session = ort.InferenceSession(endless(), providers=on_device)
    options = ort.RunOptions()
    timer = threading.Timer(0.5, setattr, (options, "terminate", True))
    timer.start()
    with pytest.raises(Fail, match="terminate flag being set to true"):
        session.run(None, {"x": X}, options)
    timer.join()


@pytest.mark.parametrize("with_options", [False, True])
def test_closing_a_session_ends_its_own_runs_alone(
    on_device: list[str], with_options: bool
) -> None:
    ending = ort.InferenceSession(endless(), providers=on_device)
    other = ort.InferenceSession(TWICE, providers=on_device)
    options = ort.RunOptions() if with_options else None
    ended, outcomes = threading.Event(), []

    def done(outputs: list[Any], data: Any, error: str) -> None:
        outcomes.append((outputs, data, error))
        ended.set()

    ending.run_async(None, {"x": X}, done, 7, options)
    ending._loaded.executable.close()
    assert ended.wait(60)
    ((outputs, data, error),) = outcomes
    assert (outputs, data) == ([], 7)
    assert "closed" in error
    current_bounds().check()
    for _ in range(2):
        assert other.run(None, {"x": X}, options)[0].tolist() == (X * 2).tolist()
        values = {"x": ort.OrtValue.ortvalue_from_numpy(X)}
        (value,) = other.run_with_ort_values(None, values, options)
        assert value.numpy().tolist() == (X * 2).tolist()


@pytest.mark.parametrize("with_options", [False, True])
def test_the_limit_of_memory_holds_in_every_run(with_options: bool) -> None:
    i64 = TensorProto.INT64
    grown = model(
        helper.make_node("ConstantOfShape", ["n"], ["y"]),
        inputs=[helper.make_tensor_value_info("n", i64, [1])],
        outputs=[helper.make_tensor_value_info("y", F32, [None])],
    )
    session = ort.InferenceSession(grown, providers=[("PolydeviceCPU", {"MEMORY_LIMIT": "1M"})])
    options = ort.RunOptions() if with_options else None
    small, large = ({"n": np.array([n], np.int64)} for n in (3, 1 << 20))
    for _ in range(2):
        with pytest.raises(EPFail, match="MEMORY_LIMIT"):
            session.run(None, large, options)
        with pytest.raises(EPFail, match="MEMORY_LIMIT"):
            values = {"n": ort.OrtValue.ortvalue_from_numpy(large["n"])}
            session.run_with_ort_values(None, values, options)
        assert session.run(None, small, options)[0].tolist() == [0, 0, 0]


def test_a_trace_lists_the_layers_of_every_run(tmp_path: Path, on_device: list[str]) -> None:
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "trace")
    before = time.perf_counter_ns()
    session = ort.InferenceSession(TWICE, options, on_device)
    assert before <= session.get_profiling_start_time_ns() <= time.perf_counter_ns()
    for _ in range(3):
        assert session.run(None, {"x": X})[0].tolist() == (X * 2).tolist()
    path = Path(session.end_profiling())
    events = json.loads(path.read_text())
    assert path.parent == tmp_path
    assert [e["name"] for e in events if e["cat"] == "Session"] == [
        "session_initialization",
        *["model_run"] * 3,
    ]
    layers = [e for e in events if e["cat"] == "Node"]
    assert len(layers) >= 3
    assert {"Add"} & {e["args"]["op_name"] for e in layers}
    assert all(e["ph"] == "X" and e["dur"] >= 0 and e["ts"] >= 0 for e in events)
    assert session.end_profiling() == ""
    assert session.run(None, {"x": X})[0].tolist() == (X * 2).tolist()


def test_inputs_that_are_missing_are_said_before_types() -> None:
    nodes = [helper.make_node("Add", ["x", "z"], ["y"])]
    content = model(
        *nodes, inputs=[helper.make_tensor_value_info(name, F32, [2, 3]) for name in "xz"]
    )
    wrong = {"x": X.astype(np.int32)}
    texts = []
    for module in (onnxruntime, ort):
        session = module.InferenceSession(content, providers=["CPUExecutionProvider"])
        with pytest.raises(ValueError, match="are missing from input feed") as caught:
            session.run(None, wrong)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.InvalidArgument):
        session.run(None, {**wrong, "z": X})
