"""What `polydevice doctor` says about OpenCL."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from polydevice_gpu import cl
from polydevice_gpu.cl import capabilities, child_process, library
from polydevice_gpu.cl.discovery.facts import DeviceFacts
from polydevice_gpu.cl.discovery.troubles import TROUBLES
from polydevice_gpu.reports.diagnosis import diagnose
from polydevice_gpu.tuning import pretuned


@pytest.fixture
def sections(opencl, monkeypatch, tmp_path):
    """Diagnose with a cache of its own; returns title → subject → line."""
    monkeypatch.setenv("POLYDEVICE_CACHE_DIR", str(tmp_path / "kept"))

    def ask(seconds: float = 60.0):
        found = diagnose(cl.discover(), seconds)
        return {section.title: {line.subject: line for line in section.lines} for section in found}

    return ask


def device_lines(found):
    (title,) = [title for title in found if title.startswith("GPU.0: ")]
    return title, found[title]


def test_every_probe_with_its_answer_or_reason(opencl, sections) -> None:
    for _ in range(2):  # probed, and remembered
        title, lines = device_lines(sections())
        assert opencl.facts.name in title
        assert opencl.facts.driver_version in title
        assert list(lines) == [f.name for f in capabilities.fields(capabilities.ProbedCapabilities)]
        for name, line in lines.items():
            answer = getattr(opencl.capabilities, name)
            if isinstance(answer, bool):
                assert line.answer == ("yes" if answer else "no")
            elif isinstance(answer, tuple):
                assert line.answer == (", ".join(map(str, answer)) or "none")
            else:
                assert line.answer == str(answer)
            # Numbers in a reason are measured, and differ from run to run.
            reasons = (line.reason, opencl.capability_reasons.get(name, ""))
            assert len({re.sub(r"\d+", "N", reason) for reason in reasons}) == 1


def test_the_loader_is_named(sections) -> None:
    line = sections()["OpenCL loader and .icd files"]["loader"]
    if not library.preloaded():
        assert all(Path(file).is_file() for file in line.answer.split(", "))
        assert library.find_library()[0] in line.reason


def test_probes_that_take_too_long_are_not_waited_for(sections, monkeypatch, tmp_path) -> None:
    real, devices = child_process.run, len(cl.discover().devices)

    def slow(module, argument, **options):
        assert options["timeout_s"] == 0.5 / devices  # which share the time
        outcome = real(module, argument, **{**options, "timeout_s": 60})
        return replace(outcome, status="hung", messages=outcome.messages[:6], detail="no answer")

    monkeypatch.setattr(child_process, "run", slow)
    _, lines = device_lines(sections(0.5))
    (late,) = [line for line in lines.values() if line.answer == "not known"]
    assert "command_buffers" in late.subject
    assert lines["c_standard"].answer.startswith("CL")
    assert "fp16_storage" in lines
    assert not list((tmp_path / "kept" / "gpu-capabilities").iterdir()), "half an answer kept"


def test_driver_that_dies_in_a_probe(sections, monkeypatch) -> None:
    real = child_process.run

    def dying(module, argument, **options):
        outcome = real(module, argument, **options)
        return replace(outcome, status="crashed", messages=({"start": "open"},), detail="SIGSEGV")

    monkeypatch.setattr(child_process, "run", dying)
    _, lines = device_lines(sections())
    assert "SIGSEGV" in lines["probes"].reason
    assert lines["probes"].fix


@pytest.mark.parametrize(
    ("platform", "driver", "names"),
    [
        ("Portable Computing Language", "3.1+debian", {"PoCL", "PoCL 3.1", "PoCL 3.1 and 6.0"}),
        ("Portable Computing Language", "6.0+debian", {"PoCL", "PoCL 6.0", "PoCL 3.1 and 6.0"}),
        ("NVIDIA CUDA", "580.159.04", {"NVIDIA"}),
        ("AMD Accelerated Parallel Processing", "3590.0", set()),
        ("Intel(R) OpenCL", "24.35.30872", set()),  # a GPU
    ],
)
def test_troubles_are_those_of_the_driver(platform, driver, names) -> None:
    facts = DeviceFacts(platform, "", "OpenCL 3.0", 0, 0, driver_version=driver, type=1 << 2)
    assert {t.driver for t in TROUBLES if t.concerns(facts)} == names


def test_pretuned_files_of_these_and_of_other_kernels(opencl, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(pretuned, "FOLDER", tmp_path)
    report = cl.discover()
    device = next(found for found in report.devices if found.facts == opencl.facts)

    def answers() -> dict[str, str]:
        (section,) = [s for s in diagnose(report, 60.0) if s.title == "Pretuned kernels"]
        lines = [line for line in section.lines if line.subject == f"GPU.{device.id}"]
        return {line.reason: line.answer for line in lines}

    beginning = pretuned.beginning(opencl.facts)
    assert answers() == {f"{beginning}….json": "none shipped"}
    ours = pretuned.file_name(opencl.facts, "gemm")
    (tmp_path / ours).write_text("{}")
    (tmp_path / f"{beginning}gemm,of-others.json").write_text("{}")
    assert answers() == {
        ours: "shipped",
        f"{beginning}gemm,of-others.json": "not used: of other kernels",
    }
