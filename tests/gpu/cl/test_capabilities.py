"""Capabilities come from kernels that ran; the file that keeps them is never trusted blindly."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from polydevice_gpu import cl
from polydevice_gpu.cl import capabilities, child_process, library
from polydevice_gpu.cl.capabilities import ProbedCapabilities, probed_capabilities
from polydevice_gpu.cl.discovery.icd import loader_environment
from polydevice_gpu.cl.probing import probes
from tests.tiers import firsts


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
    firsts(2, [
        lambda content: "",
        lambda content: content[: len(content) // 2],
        lambda content: content.replace('"fp64": ', '"fp64": not '),
        lambda content: content.replace('"local_memory_bytes": ', '"local_memory_bytes": 9'),
        lambda content: json.dumps([]),
        lambda content: "[" * 100000,
    ]),
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


ASK_WITHOUT_PACKAGES = """
import json, sys
from polydevice_gpu.cl import library
from polydevice_gpu.cl.probing import probes

def by_default_name():
    raise AssertionError("looked for an OpenCL library instead of using the one handed over")

library.find_library = by_default_name
probes.main(json.loads(sys.argv[1]), lambda message: print("said", json.dumps(message)))
"""


def test_every_probe_uses_the_library_it_was_handed(opencl) -> None:
    # The child sees no pyopencl, and a system without its own libOpenCL.so.1 has that one only.
    argument = {
        "opencl": library.find_library()[0],
        "identity": opencl.facts.identity,
        "twin": opencl._twin,
        "skip": [],
    }
    drivers = opencl._drivers
    with contextlib.ExitStack() as stack:
        found = {} if drivers is None else stack.enter_context(loader_environment(drivers))
        variables = {name: value for name, value in found.items() if value is not None}
        done = subprocess.run(
            [sys.executable, "-c", ASK_WITHOUT_PACKAGES, json.dumps(argument)],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith("said ")]
    answers = [json.loads(line.removeprefix("said ")) for line in lines]
    answers = [answer for answer in answers if "probe" in answer]
    assert [answer["probe"] for answer in answers[1:]] == [p.__name__ for p in probes.PROBES]
    assert not [answer for answer in answers if "raised" in answer]


def test_no_probe_has_a_defect(probe, opencl, caplog) -> None:
    probe()
    assert not caplog.records


def test_exception_in_one_probe_is_our_defect_and_costs_that_answer_only(
    probe, opencl, monkeypatch, tmp_path, caplog
) -> None:
    whole, _ = probed_capabilities(opencl.facts, opencl._twin, opencl._drivers, tmp_path / "a")

    def broken(bench):
        raise OSError("cannot open shared object file")

    broken.__name__ = "fp64"
    here = [broken if p.__name__ == "fp64" else p for p in probes.PROBES]
    monkeypatch.setattr(probes, "PROBES", here)
    told = []
    argument = {"opencl": library.find_library()[0], "identity": opencl.facts.identity}
    argument |= {"twin": opencl._twin, "skip": [p.__name__ for p in here if p is not broken]}
    monkeypatch.setattr(library, "_handed", [])
    probes.main(argument, told.append)
    (raised,) = [message for message in told if message.get("probe") == "fp64"]
    assert "OSError: cannot open shared object file" in raised["raised"]

    real = child_process.run

    def with_the_defect(module, argument, **options):
        outcome = real(module, argument, **options)
        messages = [raised if m.get("probe") == "fp64" else m for m in outcome.messages]
        return replace(outcome, messages=tuple(messages))

    monkeypatch.setattr(child_process, "run", with_the_defect)
    answers, ran = probe()
    assert (answers, ran) == (replace(whole, fp64=False), 1)
    (record,) = caplog.records
    assert "defect of polydevice, not of a driver" in record.message
    assert "in broken" in record.message  # the traceback
    assert probe() == (answers, 0)  # remembered: no process pays for it again
    (file,) = (tmp_path / "c").glob("*.json")
    assert "defect of polydevice's probe" in json.loads(file.read_text())["reasons"]["fp64"]


def test_exception_outside_of_the_probes_is_remembered_too(probe, monkeypatch) -> None:
    argument = {"opencl": library.find_library()[0], "identity": None, "twin": 0, "skip": []}
    outcome = child_process.run("probing.probes", argument, timeout_s=60)
    assert (outcome.status, outcome.messages) == ("raised", ({"start": "open"},))
    assert "TypeError" in outcome.detail
    monkeypatch.setattr(child_process, "run", lambda *_, **__: outcome)
    answers, _ = probe()
    assert answers == ProbedCapabilities()
    monkeypatch.setattr(child_process, "run", None)  # not asked again
    assert probe()[0] == answers


def test_exception_that_may_pass_is_asked_about_again(probe, monkeypatch) -> None:
    why = "OSError: too many open files"
    outcome = child_process.Outcome("raised", ({"start": "open"},), why, "")
    with monkeypatch.context() as patch:
        patch.setattr(child_process, "run", lambda *_, **__: outcome)
        assert probe()[0] == ProbedCapabilities()
    answers, asked = probe()
    assert answers.c_standard and asked == 1


def test_no_answer_is_kept_where_nothing_compiles(opencl, monkeypatch, tmp_path) -> None:
    """PoCL compiles nothing without a folder that it can write; the next time it may have one."""
    if "PoCL" not in opencl.facts.platform_version:
        pytest.skip(f"{opencl.name} needs no folder")
    device = opencl.facts, opencl._twin, opencl._drivers, tmp_path / "c"
    with monkeypatch.context() as patch:
        patch.setenv("POCL_CACHE_DIR", "/proc")
        answers, reasons = probed_capabilities(*device)
    assert answers == ProbedCapabilities()
    assert re.fullmatch("even an addition does not compile: .*failed to build.*", reasons["open"])
    assert not list((tmp_path / "c").glob("*"))
    assert probed_capabilities(*device)[0].c_standard


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


def test_processors_multiply_bytes_by_the_way_that_their_compiler_has(opencl) -> None:
    """Without a way quantised networks stay in f32, which their own tests would take as it is."""
    if opencl.facts.kind != "CPU":
        pytest.skip("needs a processor's OpenCL runtime")
    told = Path("/proc/cpuinfo")
    if not told.exists() or "avx512_vnni" not in told.read_text("ascii", "replace"):
        pytest.skip("needs a processor with AVX-512 VNNI, and Linux to say so")
    way, facts = opencl.capabilities.integer_dot_product_x86, opencl.facts
    if facts.platform_name.startswith("Intel"):
        year, release = map(int, facts.driver_version.split(".")[:2])
        assert way == ("bytes" if (year, release) >= (2026, 21) else "words")
    elif facts.driver_version.startswith("3."):
        assert way == "assembly"
    else:
        pytest.skip(f"PoCL {facts.driver_version} may compile for less than the processor has")
