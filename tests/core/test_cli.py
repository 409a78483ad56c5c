"""The command line, as pipes see it and as a terminal shows it."""

from __future__ import annotations

import sys

import pytest

from polydevice.cli import main


def rows(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    return [line.split("\t") for line in capsys.readouterr().out.splitlines()]


def test_devices(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices"]) == 0
    names = [name for name, _ in rows(capsys)]
    assert "CPU" in names
    assert "HETERO" not in names


def test_devices_why_has_a_status_for_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "--why"]) == 0
    found = rows(capsys)
    assert {status for _, _, status, _, _ in found} <= {"available", "found", "left out", "failed"}
    assert ["CPU.0", "available"] in [[device, status] for device, _, status, _, _ in found]
    for _, subject, status, reason, _ in found:
        assert reason or status in ("available", "found"), subject


def test_plugins(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins"]) == 0
    found = {row[0]: row for row in rows(capsys)}
    assert set(found) >= {"CPU", "GPU", "HETERO"}
    name, module, distribution, hooks, state = found["CPU"]
    assert (name, module, state) == ("CPU", "polydevice_cpu", "ready")
    assert distribution.startswith("polydevice ")
    assert "register_devices" in hooks


def test_ops(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ops"]) == 0
    found = {row[0]: row for row in rows(capsys)}
    assert found["ReLU"][:3] == ["ReLU", "opset 1", "Relu"]
    assert found["SoftMax"][1] == "opset 1, 8"


def test_a_terminal_gets_a_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")  # no escape codes
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["devices"]) == 0
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.split() == ["Device", "Name"]
    assert any(line.startswith("CPU ") for line in lines)


def test_an_unknown_command_shows_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["divices"])
    assert "devices" in capsys.readouterr().err
