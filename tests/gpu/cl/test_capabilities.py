"""Capabilities come from kernels that ran; the file that keeps them is never trusted blindly."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from polydevice_gpu import cl
from polydevice_gpu.cl import capabilities, child_process
from polydevice_gpu.cl.capabilities import ProbedCapabilities, probed_capabilities


@pytest.fixture
def probe(opencl, tmp_path, monkeypatch):
    """Probe the device with a cache of its own; returns (answers, how often a child ran)."""
    runs = []
    real = child_process.run

    def counting(module, *arguments, **options):
        runs.append(module)
        return real(module, *arguments, **options)

    monkeypatch.setattr(child_process, "run", counting)

    def ask():
        before = len(runs)
        drivers = opencl._drivers
        answers, _ = probed_capabilities(opencl.facts, opencl._twin, drivers, tmp_path / "c")
        return answers, len(runs) - before

    return ask


def test_probed_once_per_device_and_driver(probe) -> None:
    first, ran = probe()
    again, ran_again = probe()
    assert first == again
    assert (ran, ran_again) == (1, 0)
    assert first.c_standard
    assert first.fp16_storage


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: "",
        lambda content: content[: len(content) // 2],
        lambda content: content.replace('"fp64": ', '"fp64": not '),
        lambda content: content.replace('"local_memory_bytes": ', '"local_memory_bytes": 9'),
        lambda content: json.dumps([]),
        lambda content: "[" * 100000,
    ],
)  # fmt: skip
def test_damaged_file_is_ignored_and_replaced(probe, tmp_path, damage) -> None:
    first, _ = probe()
    (path,) = (tmp_path / "c").glob("*.json")
    path.write_text(damage(path.read_text()))
    assert probe() == (first, 1)
    assert probe() == (first, 0)


def test_folder_that_others_may_write_is_not_used(probe, tmp_path) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c").chmod(0o777)
    assert probe()[1] == 1
    assert probe()[1] == 1
    assert not list((tmp_path / "c").iterdir())


@pytest.mark.parametrize(
    "values",
    [
        {"fp64": 1},
        {"no_such_probe": True},
        {"sub_group_sizes": [0]},
        {"c_standard": 3},
        {"fp64": []},
    ],
)
def test_values_of_other_types_are_refused(values) -> None:
    with pytest.raises(ValueError, match="no answer of a probe"):
        ProbedCapabilities.parse(values)


def test_crash_in_one_probe_costs_that_answer_only(opencl, monkeypatch, tmp_path) -> None:
    real = child_process.run

    def crash_once(module, argument, **options):
        outcome = real(module, argument, **options)
        if "fp64" in argument["skip"]:
            return outcome
        kept = []
        for message in outcome.messages:
            kept.append(message)
            if message == {"start": "fp64"}:
                break
        return replace(outcome, status="crashed", messages=tuple(kept), detail="killed by SIGSEGV")

    whole, _ = probed_capabilities(opencl.facts, opencl._twin, opencl._drivers, tmp_path / "a")
    monkeypatch.setattr(capabilities.child_process, "run", crash_once)
    found, reasons = probed_capabilities(
        opencl.facts, opencl._twin, opencl._drivers, tmp_path / "b"
    )
    assert found == replace(whole, fp64=False)
    assert "SIGSEGV" in reasons["fp64"]
    assert not list((tmp_path / "b").iterdir())  # what may be a passing trouble is not remembered


def test_local_memory_that_is_promised_can_be_used(opencl) -> None:
    size = opencl.capabilities.local_memory_bytes
    assert size >= 16384
    source = """__kernel void f(__global int* out, __local int* tile, int words) {
        for (int i = get_local_id(0); i < words; i += 16) tile[i] = i;
        barrier(CLK_LOCAL_MEM_FENCE);
        int sum = 0;
        for (int i = get_local_id(0); i < words; i += 16) sum += tile[words - 1 - i];
        out[get_local_id(0)] = sum; }"""
    words = size // 4
    buffer = opencl.memory.allocate(64, "sums")
    launches = cl.LaunchList(opencl)
    kernel = cl.ProgramBuilder(opencl).build("local", source).kernel("f")
    launches.add(kernel, (16,), (16,), [buffer, cl.LocalMemory(size), np.int32(words)])
    sums = np.empty(16, np.int32)
    with opencl.queue() as queue:
        launches.enqueue(queue)
        queue.download(buffer, sums)
    assert sums.astype(np.int64).sum() & 0xFFFFFFFF == words * (words - 1) // 2 & 0xFFFFFFFF


def test_sub_group_sizes_are_those_that_kernels_get(opencl) -> None:
    can = opencl.capabilities
    if "cl_intel_required_subgroup_size" not in opencl.facts.extension_names:
        pytest.skip("needs a device where a kernel may require a sub-group size")
    for size in can.sub_group_sizes:
        source = f"""__attribute__((intel_reqd_sub_group_size({size})))
            __kernel void f(__global int* out) {{
            out[get_global_id(0)] = sub_group_reduce_add(1); }}"""
        buffer = opencl.memory.allocate(4 * 128, "sizes")
        launches = cl.LaunchList(opencl)
        kernel = cl.ProgramBuilder(opencl).build("sizes", source).kernel("f")
        launches.add(kernel, (128,), (128,), [buffer])
        sizes = np.empty(128, np.int32)
        with opencl.queue() as queue:
            launches.enqueue(queue)
            queue.download(buffer, sizes)
        assert set(sizes.tolist()) == {size}


def test_nvidia_device_has_what_kernels_count_on(opencl) -> None:
    if opencl.facts.compute_capability_major_nv < 8:
        pytest.skip("needs an NVIDIA device of compute capability 8 or newer")
    can = opencl.capabilities
    assert can.native_sub_group_width == 32
    assert can.inline_ptx
    assert can.integer_dot_product_ptx
    assert can.tensor_cores_ptx
    assert can.async_copy_ptx
    assert can.fp16_storage
    assert can.local_memory_is_dedicated
    assert can.local_memory_bytes >= 48 * 1024 - 1024
    assert not can.unified_memory
