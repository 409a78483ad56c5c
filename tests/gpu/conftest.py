"""The OpenCL device that tests of the GPU plugin use directly, a Core, and a user of OpenCL."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterator

import pytest

from polydevice import Core
from polydevice_gpu import cl
from polydevice_gpu.cl import child_process
from polydevice_gpu.cl.capabilities import Capabilities
from polydevice_gpu.compiler import compiler
from polydevice_gpu.compiler.device_target import target_of
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.kernel import Choice
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.tuning import tuner
from polydevice_gpu.tuning.candidates import candidates


@pytest.fixture(scope="session")
def opencl() -> cl.Device:
    """The first OpenCL device that the rule admits."""
    report = cl.discover()
    if not report.devices:
        pytest.skip(f"no OpenCL device here:\n{report.text()}")
    device = cl.open_device(report.devices[0])
    assert device.context  # before a test puts something in the place of what makes it in a thread
    return device


@pytest.fixture(autouse=True)
def _answers_alone(compiled_sparingly: None) -> None:
    """Compile sparingly, but where a module or folder has a fixture of this name for itself.

    `tests/conformance`, `tests/devices` and the models run as users have them compiled.
    """


@pytest.fixture
def compiled_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile in this process, where tests see it, on drivers that compile one after another too.

    Child processes do so for those otherwise.
    """
    monkeypatch.setattr(Capabilities, "compiles_in_turn", False)


@pytest.fixture
def hung_build(monkeypatch: pytest.MonkeyPatch, opencl: cl.Device) -> threading.Event:
    """Let child processes hang until they are given up; set as soon as one is asked for."""
    asked = threading.Event()

    def hang(device, module, argument, timeout_s, goes_on) -> child_process.Outcome:
        while goes_on():
            asked.set()
            time.sleep(0.01)
        return child_process.Outcome("hung", (), "", "")

    monkeypatch.setattr(type(opencl), "run_in_child", hang)
    return asked


@pytest.fixture
def lockstep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let kernels be chosen as for devices whose work-items run in lockstep.

    Without sub-groups: with Intel's one program serves products of every size. Nor with what only
    NVIDIA's have, so that the same is chosen everywhere.
    """

    def target(device: cl.Device) -> Target:
        return dataclasses.replace(
            target_of(device),
            scalar_lanes=32,
            compute_units=16,
            local_memory_bytes=1 << 15,
            sub_group_sizes=(),
            sub_group_share="",
            sub_group_block_read=False,
            sub_group_block_read_16bit=False,
            matrix_unit=False,
            warp_group_unit=False,
            async_copy=False,
            warp_shuffle=False,
        )

    monkeypatch.setattr(compiler, "target_of", target)


@pytest.fixture
def core(opencl: cl.Device) -> Iterator[Core]:
    """A Core on a machine that has an OpenCL device."""
    with Core() as made:
        yield made


@pytest.fixture
def user(opencl: cl.Device):
    """A program's own OpenCL context and queue on that device."""
    from tests.gpu.remote import User  # imports pyopencl and the CPU tests' ONNX models

    return User(opencl)


@pytest.fixture
def few_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tune among the first four candidates of a layer and the last one, of up to 87.

    Compiling those is most of what tuning takes; that each is right is for `test_kernels`.
    """

    def few(node: GpuNode, target: Target) -> list[Choice]:
        found = candidates(node, target)
        return [*found[:4], *found[4:][-1:]]

    monkeypatch.setattr(tuner, "candidates", few)
