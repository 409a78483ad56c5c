"""`polydevice doctor`: one page that never fails."""

from __future__ import annotations

import json
import sys

import pytest

from polydevice import __version__
from polydevice.cli import main
from polydevice.commands import doctor
from polydevice.core import Core
from polydevice.plugin import DeviceReport, Line, Section


def lines_of(sections: list[Section], title: str) -> dict[str, Line]:
    (found,) = [section for section in sections if section.title == title]
    return {line.subject: line for line in found.lines}


def test_page_and_json_say_the_same(capsys, monkeypatch) -> None:
    sections = [
        Section("One", (Line("a", "yes", "it is", "leave it"), Line("b", "no"))),
        Section("Two", ()),
    ]
    monkeypatch.setattr(doctor, "examine", lambda: sections)
    assert main(["doctor"]) == 0
    one = "One\n  a: yes: it is\n      fix: leave it\n  b: no\n"
    page = f"polydevice {__version__}, doctor\n\n{one}\nTwo\n"
    assert capsys.readouterr().out == page
    assert main(["doctor", "--json"]) == 0
    line = {"subject": "a", "answer": "yes", "reason": "it is", "fix": "leave it"}
    other = {"subject": "b", "answer": "no", "reason": "", "fix": ""}
    assert json.loads(capsys.readouterr().out) == {
        "polydevice": __version__,
        "sections": [{"title": "One", "lines": [line, other]}, {"title": "Two", "lines": []}],
    }


def test_what_it_knows_of_this_machine(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("POLYDEVICE_CACHE_DIR", str(tmp_path / "kept"))
    monkeypatch.setenv("POLYDEVICE_SOMETHING", "set")
    sections = doctor.examine()
    python = lines_of(sections, "Python")
    assert sys.version.split()[0] in python["version"].answer
    assert python["executable"].answer == sys.executable
    packages = lines_of(sections, "Packages")
    assert packages["polydevice"].answer == __version__
    assert " numpy " in f" {packages['installed'].answer}"
    assert not any(line.answer == "missing" for line in packages.values())
    assert lines_of(sections, "Environment variables")["POLYDEVICE_SOMETHING"].answer == "set"
    cache = lines_of(sections, "Cache folder")[str(tmp_path / "kept")]
    assert (cache.answer, cache.fix) == ("writable", "")
    assert any(section.title.startswith("CPU: ") for section in sections)
    assert any(section.title.startswith("GPU: ") for section in sections)


def test_cache_folder_that_others_may_write(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("POLYDEVICE_CACHE_DIR", str(tmp_path))
    tmp_path.chmod(0o777)
    (line,) = lines_of(doctor.examine(), "Cache folder").values()
    assert line.answer == "cannot be used"
    assert "writable for other users" in line.reason
    assert "POLYDEVICE_CACHE_DIR" in line.fix


def broken(*_: object) -> None:
    raise RuntimeError("broken on purpose")


@pytest.mark.parametrize(
    ("owner", "attribute", "title"),
    [
        (doctor.platform, "python_version", "Python"),
        (doctor, "_files", "Cache folder"),
        (Core, "diagnose_devices", "Devices"),
        (Core, "__init__", "Devices"),
    ],
)
def test_whatever_breaks_is_a_line(monkeypatch, tmp_path, owner, attribute, title) -> None:
    monkeypatch.setenv("POLYDEVICE_CACHE_DIR", str(tmp_path))
    (tmp_path / "folder").mkdir(mode=0o700)
    monkeypatch.setattr(owner, attribute, broken)
    sections = doctor.examine()
    assert "broken on purpose" in lines_of(sections, title)["cannot be found out"].answer
    assert {"Python", "Packages", "Environment variables", "Cache folder"} < {
        section.title for section in sections
    }
    assert "broken on purpose" in doctor.page(sections)


def test_plugin_that_fails_is_a_line_and_the_others_go_on(monkeypatch) -> None:
    from polydevice_cpu.plugin import CpuPlugin

    monkeypatch.setattr(CpuPlugin, "diagnose", broken)
    with Core() as core:
        sections = core.diagnose_devices()
    line = lines_of(sections, "CPU: devices")["plugin"]
    assert line.answer == "failed"
    assert "broken on purpose" in line.reason
    assert any(section.title.startswith("GPU: ") for section in sections)


def test_rule_for_devices_that_is_not_legal(monkeypatch) -> None:
    monkeypatch.setenv("POLYDEVICE_GPU_DEVICES", "gpus")
    text = doctor.page(doctor.examine())
    assert "POLYDEVICE_GPU_DEVICES='gpus'" in text
    assert "all-gpus" in text


def test_lines_of_device_reports() -> None:
    found = DeviceReport("device x", "left out", "why", "what to do")
    assert Line.of_report(found) == Line("device x", "left out", "why", "what to do")
    assert Line.of_report(DeviceReport("y", "available", device="GPU.1")) == Line(
        "y", "available as GPU.1"
    )
