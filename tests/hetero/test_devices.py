"""HETERO on two GPUs, and with devices of third parties."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from polydevice import Copies, Core, ElementType
from polydevice.errors import BlobError, DeviceError
from tests.cpu.models import answer
from tests.hetero.networks import by_type, check, held, normal, place, there_and_back

F32 = ElementType.f32


def test_a_third_partys_device_memory(monkeypatch) -> None:
    """HETERO knows contexts, not GPUs: nothing leaves the vault that is not read outside."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    model = there_and_back(2, 3, outputs=("y", "c"))
    with Core() as core:
        core.register_plugin("vault", "VAULT")
        executable = core.load_network(core.read_network(model), "HETERO:VAULT,CPU")
        assert [part.device for part in executable.subgraphs] == ["VAULT", "CPU", "VAULT"]
        assert executable.get_context() is core.get_default_context("VAULT")
        request = executable.create_infer_request()
        for _ in range(2):
            check(request, model, normal(2, 3))
            assert request.copies == Copies(uploads=2, downloads=3)  # x, b; a, c, y
        blob = executable.get_context().create_blob(executable.outputs["y"].desc)
        request.set_blob("y", blob)
        x = normal(2, 3)
        assert list(request.infer({"x": x})) == ["c"]
        np.testing.assert_allclose(held(blob), answer(model, {"x": x})[0], rtol=1e-5, atol=1e-6)


def test_devices_with_memories_of_their_own(core, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "samples/npu_plugin"))
    core.register_plugin("vault", "VAULT")
    core.register_plugin("polydevice_npu", "NPU")
    model = there_and_back(2, 3, outputs=("y", "b"))
    network = place(core.read_network(model), by_type(Tanh="CPU", Add="VAULT"))
    next(node for node in network.nodes() if node.name == "y").rt_info["affinity"] = "NPU"
    executable = core.load_network(network, "HETERO:GPU,VAULT,NPU,CPU")
    assert [part.device for part in executable.subgraphs] == ["GPU", "CPU", "VAULT", "NPU"]
    request = executable.create_infer_request()
    for _ in range(2):
        check(request, model, normal(2, 3))
        assert request.copies == Copies(uploads=3, downloads=2)  # x, a, b; a, c
    with pytest.raises(DeviceError, match=r"in 2 contexts \(GPU.0, VAULT.0\)"):
        executable.get_context()
    blob = core.get_default_context("VAULT").create_blob(executable.inputs["x"].desc)
    with pytest.raises(BlobError, match="'x' cannot be .* it is read on GPU, outside"):
        request.set_blob("x", blob)


TWO_DEVICES = """
import numpy as np
from polydevice import Core, Copies
from polydevice.errors import BlobError, DeviceError
from tests.cpu.models import answer
from tests.hetero.networks import check, normal, place, there_and_back

with Core() as core:
    if not {"GPU.0", "GPU.1"} <= set(core.available_devices):
        raise SystemExit(77)
    model = there_and_back(2, 3)
    for middle, crossings in (("GPU.1", 3), ("CPU", 2)):
        network = place(core.read_network(model), lambda n: middle if n.type == "Tanh" else "GPU.0")
        executable = core.load_network(network, f"HETERO:GPU.0,{middle}")
        assert [part.device for part in executable.subgraphs] == ["GPU.0", middle, "GPU.0"]
        request = executable.create_infer_request()
        for _ in range(2):
            check(request, model, normal(2, 3))
            # Between two devices a value goes down and up; a stays on GPU.0 all the same.
            assert request.copies == Copies(crossings, crossings), (middle, request.copies)
        blob = core.get_default_context("GPU.0").create_blob(executable.inputs["x"].desc)
        x = normal(2, 3)
        blob.copy_from(x)
        np.testing.assert_allclose(
            request.infer({"x": blob})["y"], answer(model, {"x": x})[0], rtol=1e-5, atol=1e-6
        )
        try:
            request.set_blob("y", core.get_default_context("GPU.1").create_blob(blob.desc))
        except BlobError as error:
            assert "it is computed on GPU.0, outside of the blob's context" in str(error)
        else:
            raise AssertionError("memory of the other device was taken")
"""


def test_two_gpus() -> None:
    """In a process of its own, where PoCL shows its two kinds of CPU devices."""
    pytest.importorskip("onnxruntime", reason="its answers are compared with, in a process")
    environment = {
        **os.environ,
        "POLYDEVICE_GPU_DEVICES": "all-gpus,cpu",
        "POCL_DEVICES": "pthread basic",
    }
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", TWO_DEVICES],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    if done.returncode == 77:
        pytest.skip("needs two OpenCL devices")
    assert done.returncode == 0, done.stderr
