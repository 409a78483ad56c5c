"""Providers: which device runs a session, and what is said of it."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import polydevice.compat.onnxruntime as ort
from polydevice.compat import choose_device, chosen_device
from polydevice.compat.onnxruntime import providers
from polydevice.compat.onnxruntime.capi.onnxruntime_pybind11_state import (
    EPFail,
)
from polydevice.dtype import ElementType
from polydevice.network import Network
from polydevice.node import Node, constant
from polydevice.ops.arithmetic import Multiply
from polydevice.ops.io import Parameter, Result
from polydevice.ops.op import Op, operation
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc
from polydevice_cpu.implement import implements
from polydevice_hetero.executable import HeteroExecutable
from tests.compat.onnxruntime_models import TWICE, X, model


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


def test_numbers_of_kinds_of_devices() -> None:
    from onnxruntime.capi.onnxruntime_inference_collection import get_ort_device_type as theirs

    from polydevice.compat.onnxruntime.capi.onnxruntime_inference_collection import (
        get_ort_device_type as ours,
    )

    for name in ("cpu", "cuda", "gpu", "npu"):
        assert ours(name) == theirs(name)
    with pytest.raises(Exception, match="Unsupported device type: abacus"):
        ours("abacus")
