"""Sessions: devices behind providers, memory on a device, threads, traces, and what is refused."""

from __future__ import annotations

import gc
import json
import logging
import threading
import time
import warnings
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import polydevice.compat.onnxruntime as ort
from polydevice.bounds import current_bounds
from polydevice.compat import choose_device, chosen_device
from polydevice.compat.onnxruntime import providers
from polydevice.compat.onnxruntime.capi.onnxruntime_pybind11_state import (
    EPFail,
    Fail,
    InvalidGraph,
)
from polydevice.compat.onnxruntime.capi.onnxruntime_pybind11_state import (
    NotImplemented as OrtNotImplemented,
)
from polydevice.dtype import ElementType
from polydevice.network import Network
from polydevice.node import Node, constant
from polydevice.ops.arithmetic import Multiply
from polydevice.ops.io import Parameter, Result
from polydevice.ops.op import Op, operation
from polydevice.remote import Copies
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc
from polydevice_cpu.implement import implements
from polydevice_hetero.executable import HeteroExecutable

F32 = TensorProto.FLOAT


def model(*nodes: Any, inputs: Any = None, outputs: Any = None, stored: Any = ()) -> bytes:
    inputs = inputs or [helper.make_tensor_value_info("x", F32, [2, 3])]
    outputs = outputs or [helper.make_tensor_value_info("y", F32, [2, 3])]
    graph = helper.make_graph(list(nodes), "g", inputs, outputs, list(stored))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("org.example", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


TWICE = model(helper.make_node("Add", ["x", "x"], ["y"]))
X = np.arange(6, dtype=np.float32).reshape(2, 3)
WITH_WEIGHTS = model(
    helper.make_node("Mul", ["x", "w"], ["y"]),
    stored=[helper.make_tensor("w", F32, [3], [1, 2, 3])],
)


@pytest.fixture(autouse=True)
def _first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "_said", set())


@pytest.fixture
def on_device(device: str) -> list[str]:
    return ["PolydeviceGPU" if device.startswith("GPU") else "PolydeviceCPU"]


def test_our_providers_name_devices(device: str, on_device: list[str]) -> None:
    session = ort.InferenceSession(TWICE, providers=on_device)
    assert session._loaded.executable.device.partition(".")[0] == device.partition(".")[0]
    assert session.get_providers()[0] == on_device[0]
    assert session.run(None, {"x": X})[0].tolist() == (X * 2).tolist()
    assert set(on_device) <= set(ort.get_available_providers()) <= set(ort.get_all_providers())


def test_another_makers_provider_is_said_to_be_ours_once(
    device: str, caplog: pytest.LogCaptureFixture
) -> None:
    if not device.startswith("GPU"):
        pytest.skip("about the GPU")
    with caplog.at_level(logging.WARNING, "polydevice.compat.onnxruntime"):
        for _ in range(2):
            session = ort.InferenceSession(
                TWICE,
                providers=[("CUDAExecutionProvider", {"device_id": 0}), "CPUExecutionProvider"],
            )
    assert [record.message.partition("(")[0] for record in caplog.records] == [
        "CUDAExecutionProvider is polydevice's GPU here "
    ]
    assert session.get_providers() == ["CUDAExecutionProvider", "CPUExecutionProvider"]
    assert session.get_provider_options()["CUDAExecutionProvider"] == {"device_id": "0"}
    session.set_providers(["CPUExecutionProvider"])
    assert session._loaded.executable.device == "CPU"
    assert session.run(None, {"x": X})[0].tolist() == (X * 2).tolist()


def test_without_a_gpu_the_fallback_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "gpu_name", lambda: None)
    assert ort.get_available_providers() == ["PolydeviceCPU", "CPUExecutionProvider"]
    assert ort.get_device() == "CPU"
    with pytest.warns(UserWarning, match="'CUDAExecutionProvider' is not in available provider"):
        session = ort.InferenceSession(
            TWICE, providers=["CUDAExecutionProvider", "CPUExecutionProvider"]
        )
    assert session.get_providers() == ["CPUExecutionProvider"]
    with pytest.warns(UserWarning, match="'BogusExecutionProvider'"):
        ort.InferenceSession(TWICE, providers=["BogusExecutionProvider"])


@pytest.mark.parametrize(
    ("names", "options"),
    [([3], None), (["CPUExecutionProvider"], [{}, {}]), ([("CPUExecutionProvider", 1)], None)],
)
def test_wrong_lists_of_providers_are_refused(names: list[Any], options: Any) -> None:
    with pytest.raises(ValueError, match="provider"):
        ort.InferenceSession(TWICE, providers=names, provider_options=options)


def test_options_of_our_providers_are_configuration_keys() -> None:
    session = ort.InferenceSession(
        TWICE, providers=["PolydeviceCPU"], provider_options=[{"CPU_THREADS_NUM": "1"}]
    )
    assert session._loaded.executable.get_config("CPU_THREADS_NUM") == "1"
    with pytest.raises(EPFail, match="unknown configuration key 'NONSENSE'"):
        ort.InferenceSession(TWICE, providers=[("PolydeviceCPU", {"NONSENSE": "1"})])


def test_a_device_chosen_for_the_process_wins(device: str) -> None:
    choose_device(device)
    try:
        session = ort.InferenceSession(TWICE, providers=["CPUExecutionProvider"])
        assert session._loaded.executable.device.startswith(device.partition(".")[0])
    finally:
        choose_device(None)
    assert chosen_device() is None


def test_what_a_gpu_cannot_run_goes_to_the_processor_and_is_said(
    device: str, caplog: pytest.LogCaptureFixture
) -> None:
    if not device.startswith("GPU"):
        pytest.skip("about the GPU")
    text = TensorProto.STRING
    words = model(
        helper.make_node("StringNormalizer", ["x"], ["y"], case_change_action="UPPER"),
        inputs=[helper.make_tensor_value_info("x", text, [2])],
        outputs=[helper.make_tensor_value_info("y", text, [2])],
    )
    with caplog.at_level(logging.WARNING, "polydevice.compat.onnxruntime"):
        session = ort.InferenceSession(words, providers=["PolydeviceGPU"])
    assert "1 of 2 nodes run on the processor (StringNormalizer)" in caplog.text
    assert session.run(None, {"x": np.array(["a", "bc"])})[0].tolist() == ["A", "BC"]


@operation("OnCpuAlone", domain="tests.compat")
class OnCpuAlone(Op):
    """An operation that the CPU has and the GPU refuses."""

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the input."""
        return [inputs[0].without_value()]


@implements(OnCpuAlone)
def plus_one(_: OnCpuAlone, x: Any) -> Any:
    return x + 1


def test_options_hold_where_the_gpu_shares_the_model(device: str, tmp_path: Path) -> None:
    if not device.startswith("GPU"):
        pytest.skip("about the GPU")
    x = Node("x", Parameter(element_type=ElementType.f32, shape=Shape([2, 3])))
    half = Node("half", Multiply(), [x.output, constant("h", np.float32(0.5)).output])
    more = Node("more", OnCpuAlone(), [half.output])
    Network("n", [x], [Node("y", Result(), [more.output])]).serialize(tmp_path / "n.xml")
    options = ort.SessionOptions()
    options.enable_profiling, options.intra_op_num_threads = True, 1
    options.profile_file_prefix = str(tmp_path / "trace")
    given = {"MEMORY_LIMIT": "1G", "INFER_TIMEOUT_MS": "600000", "CLDNN_MEM_POOL": "NO"}
    session = ort.InferenceSession(tmp_path / "n.xml", options, [("PolydeviceGPU", given)])
    executable = session._loaded.executable
    assert isinstance(executable, HeteroExecutable)
    assert executable.get_config("MEMORY_LIMIT") == str(1 << 30)
    assert executable.get_config("INFER_TIMEOUT_MS") == "600000"
    on_gpu, on_cpu = executable.parts
    assert on_gpu.get_config("CLDNN_MEM_POOL") == "NO"
    assert on_cpu.get_config("CPU_THREADS_NUM") == "1"
    for step in range(2):
        assert session.run(None, {"x": X + step})[0].tolist() == ((X + step) / 2 + 1).tolist()
    events = json.loads(Path(session.end_profiling()).read_text())
    assert "OnCpuAlone" in {e["args"]["op_name"] for e in events if e["cat"] == "Node"}


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


# -- memory ---------------------------------------------------------------------------------------


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
    binding.clear_binding_outputs()
    with pytest.raises(RuntimeError, match="At least one output should be requested"):
        binding.bind_cpu_input("x", x)
        session.run_with_iobinding(binding)


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


# -- files ----------------------------------------------------------------------------------------


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


def test_an_optimised_model_is_written_as_ir_or_as_it_was(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "model.xml")
    ort.InferenceSession(TWICE, options)
    again = ort.InferenceSession(str(tmp_path / "model.xml"))
    assert again.run(None, {"x": X})[0].tolist() == (X * 2).tolist()
    options.optimized_model_filepath = str(tmp_path / "model.onnx")
    with caplog.at_level(logging.WARNING):
        ort.InferenceSession(TWICE, options)
    assert "model.onnx is the model as it was set up" in caplog.text
    again = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    assert again.run(None, {"x": X})[0].tolist() == (X * 2).tolist()
    options.optimized_model_filepath = str(tmp_path / "nowhere" / "model.onnx")
    with pytest.raises(Fail, match="No such file"):
        ort.InferenceSession(TWICE, options)


def test_what_is_written_holds_what_was_outside(tmp_path: Path) -> None:
    content = onnx.load_model_from_string(WITH_WEIGHTS)
    onnx.save(
        content,
        tmp_path / "model.onnx",
        save_as_external_data=True,
        location="data",
        size_threshold=0,
    )
    options = ort.SessionOptions()
    (tmp_path / "elsewhere").mkdir()
    options.optimized_model_filepath = str(tmp_path / "elsewhere" / "model.onnx")
    ort.InferenceSession(tmp_path / "model.onnx", options)
    again = onnxruntime.InferenceSession(options.optimized_model_filepath)
    assert again.run(None, {"x": X})[0].tolist() == (X * [1, 2, 3]).tolist()


def test_an_initialiser_is_given_beside_the_model() -> None:
    options = ort.SessionOptions()
    weights = np.array([5, 6, 7], np.float32)
    options.add_initializer("w", ort.OrtValue.ortvalue_from_numpy(weights))
    session = ort.InferenceSession(WITH_WEIGHTS, options)
    assert session.run(None, {"x": X})[0].tolist() == (X * weights).tolist()


def test_the_version_of_a_model_is_told_also_when_there_is_none() -> None:
    made = onnx.load_model_from_string(TWICE)
    made.ClearField("model_version")
    for version in (None, 0, 3):
        if version is not None:
            made.model_version = version
        here, there = (
            one.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
            for one in (ort, onnxruntime)
        )
        assert here.get_modelmeta().version == there.get_modelmeta().version


def test_a_file_that_says_nonsense_of_itself_is_loaded(tmp_path: Path) -> None:
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "model.xml")
    ort.InferenceSession(TWICE, options)
    path = tmp_path / "model.xml"
    text = path.read_text()
    assert "<onnx>" in text
    path.write_text(text.replace("<onnx>", '<onnx><model_version value="latest"/>'))
    assert ort.InferenceSession(path).get_modelmeta().version == 2**63 - 1


# -- refusals -------------------------------------------------------------------------------------


def test_operators_that_are_not_there_are_named() -> None:
    content = model(helper.make_node("Nonsense", ["x"], ["y"], domain="org.example"))
    with pytest.raises(OrtNotImplemented, match=r"org\.example\.Nonsense"):
        ort.InferenceSession(content)
    content = model(helper.make_node("Add", ["x"], ["y"]))
    with pytest.raises(InvalidGraph, match="1 inputs are given; legal: 2"):
        ort.InferenceSession(content)


def test_a_library_of_operators_is_refused_with_the_way_out() -> None:
    with pytest.raises(OrtNotImplemented, match=r"docs/custom-layers\.md"):
        ort.SessionOptions().register_custom_ops_library("operators.so")


def test_options_refuse_other_types_and_names() -> None:
    options = ort.SessionOptions()
    for name, value in [
        ("graph_optimization_level", 99),
        ("intra_op_num_threads", "four"),
        ("enable_profiling", "yes"),
        ("logid", 3),
    ]:
        with pytest.raises(TypeError, match=name):
            setattr(options, name, value)
    with pytest.raises(AttributeError):
        options.nonsense = 1  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="sess_options takes SessionOptions"):
        ort.InferenceSession(TWICE, 3)  # type: ignore[arg-type]


def test_nothing_warns_by_itself() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ort.disable_telemetry_events()
        ort.set_default_logger_severity(3)
        ort.preload_dlls()
        ort.InferenceSession(TWICE).run(None, {"x": X})
        ort.set_default_logger_severity(2)
    with pytest.raises(RuntimeError, match="legal: 0 to 4"):
        ort.set_default_logger_severity(9)


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


def test_numbers_of_kinds_of_devices() -> None:
    from onnxruntime.capi.onnxruntime_inference_collection import get_ort_device_type as theirs

    from polydevice.compat.onnxruntime.capi.onnxruntime_inference_collection import (
        get_ort_device_type as ours,
    )

    for name in ("cpu", "cuda", "gpu", "npu"):
        assert ours(name) == theirs(name)
    with pytest.raises(Exception, match="Unsupported device type: abacus"):
        ours("abacus")
