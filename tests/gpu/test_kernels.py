"""Every kernel in every mode, chosen or not, against OpenVINO on sizes that fit nothing."""

from __future__ import annotations

import dataclasses
import importlib
import os

import numpy as np
import pytest

from polydevice import Core
from polydevice.options import Options
from polydevice.passes.constant_folding import constant_folding
from polydevice.testing.op_case import TOLERANCES, network_of
from polydevice_gpu import cl
from polydevice_gpu.bound_plan import BoundPlan
from polydevice_gpu.compiler import target_of
from polydevice_gpu.custom.operation import Custom
from polydevice_gpu.executable import GpuExecutable
from polydevice_gpu.kernels.kernel import Kernel, all_kernels, kernels_of
from polydevice_gpu.ops import ResampleYuv
from polydevice_gpu.passes.lower import lower
from polydevice_gpu.passes.select_kernels import place_constant
from tests.gpu.kernel_cases import CASES, cases_of

SEPARATE_BUFFERS = "POLYDEVICE_TEST_SEPARATE_BUFFERS"
MODES = "POLYDEVICE_TEST_MODES"

# Custom layers bring their own kernels, and no single operation becomes a ResampleYuv;
# test_custom_layers and test_fused_frames have those.
ELSEWHERE = (Custom, ResampleYuv)
OPERATIONS = {op: kernels for op, kernels in all_kernels().items() if op not in ELSEWHERE}
KERNELS = [(op, kernel) for op, kernels in OPERATIONS.items() for kernel in kernels]


def _name(pair: tuple[type, Kernel]) -> str:
    return f"{pair[0].__name__}-{pair[1].name}"


def _modes(possible: list[int]) -> list[int]:
    """Of the modes that can run: the first and the last, all, or those of the given numbers."""
    asked = os.environ.get(MODES, "")
    if asked == "all":
        return possible
    if asked:
        return [mode for mode in map(int, asked.split(",")) if mode in possible]
    return sorted({*possible[:1], *possible[-1:]})


@pytest.fixture(scope="module")
def core():
    with Core() as made:
        yield made


@pytest.fixture(scope="module")
def builder(opencl):
    return cl.ProgramBuilder(opencl, threads=1)  # oclgrind compiles one program at a time


@pytest.fixture
def load(monkeypatch, opencl, builder, core):
    """Return a function that loads a network with one operation bound to a kernel and mode."""
    executable = importlib.import_module("polydevice_gpu.executable")
    select = importlib.import_module("polydevice_gpu.passes.select_kernels")
    target = _willing(opencl)
    if os.environ.get(SEPARATE_BUFFERS) == "1":
        # oclgrind 21.10 loses track of what was written through regions of a buffer.
        def region(self, memory):
            if memory not in self._regions:
                self._regions[memory] = opencl.memory.allocate(max(memory.bytes, 1), memory.name)
            return self._regions[memory]

        monkeypatch.setattr(BoundPlan, "region", region)

    def loaded(network, op: type, kernel: Kernel, mode: int) -> GpuExecutable:
        monkeypatch.setattr(executable, "target_of", lambda _: target)
        monkeypatch.setattr(select, "kernels_of", lambda o: [kernel] if o is op else kernels_of(o))
        monkeypatch.setattr(type(kernel), "default_mode", lambda *_: mode)
        return GpuExecutable(network, "GPU", Options(), opencl, builder, core)

    return loaded


def _willing(device: cl.Device):
    """Local memory that is ordinary memory is slow, not wrong: let kernels that want it run."""
    real = target_of(device)
    return dataclasses.replace(
        real, local_memory_bytes=max(real.local_memory_bytes, 49152), max_work_group_size=1024
    )


def test_every_operation_with_kernels_has_cases():
    assert set(OPERATIONS) == set(CASES)


def test_the_last_kernel_of_each_operation_is_the_reference():
    for op, kernels in OPERATIONS.items():
        assert kernels[-1].name.endswith("_ref"), f"{op.__name__} ends in {kernels[-1].name}"


@pytest.mark.parametrize("dtype", ["f4", "f2"])
@pytest.mark.parametrize("pair", KERNELS, ids=_name)
def test_kernel(load, core, opencl, pair, dtype):
    _check(load, core, opencl, pair, dtype, _modes)


def _check(load, core, opencl, pair, dtype, modes) -> None:
    """Run an operation's cases in some of the modes that take them, twice each."""
    op, kernel = pair
    target, ran = _willing(opencl), 0
    for case in cases_of(op, dtype):
        network = network_of(case)
        network.evaluate = core.evaluate
        network.infer()
        expected = None
        possible = [
            mode
            for mode in range(len(kernel.modes))
            if _supports(kernel, op, network.clone(), core, target, mode)
        ]
        for mode in modes(possible):
            expected = case.expected() if expected is None else expected
            given = {f"input{i}": a for i, a in enumerate(case.inputs) if not case.is_constant(i)}
            request = load(network.clone(), op, kernel, mode).create_infer_request()
            for _ in range(2):
                outputs = request.infer(given)
                for index, answer in enumerate(expected):
                    _compare(outputs[f"output{index}"], answer, case, f"{case.op} mode {mode}")
            ran += 1
    if not ran:
        pytest.skip(f"{kernel.name} takes none of the cases here (capabilities of the device)")


def _compare(output, answer, case, what):
    answer = np.asarray(answer)
    assert output.shape == answer.shape, what
    kind = next(t for t in TOLERANCES if t.dtype == output.dtype) if output.dtype.kind == "f" else 0
    relative, absolute = case.tolerance or (TOLERANCES[kind] if kind else (0, 0))
    np.testing.assert_allclose(
        output.astype("f8"), answer.astype("f8"), relative, absolute, err_msg=what
    )


def _supports(kernel, op, network, core, target, mode) -> bool:
    """Whether the kernel takes the node that the network becomes."""
    constant_folding(network, core.evaluate)
    nodes = [node for node in lower(network, fp64=True).nodes if type(node.op) is op]
    for node in nodes:
        for value in node.inputs:
            place_constant(value)
    return bool(nodes) and all(
        kernel.supports(node, target) and kernel.mode_supports(node, kernel.modes[mode], target)
        for node in nodes
    )
