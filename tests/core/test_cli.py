"""The command line, as pipes see it and as a terminal shows it."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import polydevice
from polydevice.cli import main

MODEL = Path(__file__).parents[2] / "samples/models/blazeface/blazeface.xml"


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


def test_ops_says_where_an_operation_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ops", "Softmax"]) == 0  # by its name in ONNX
    found = rows(capsys)
    root = Path(polydevice.__file__).parents[1]
    definition = next(row for row in found if row[1] == "definition")
    file, _, line = definition[2].partition(":")
    text = (root / file).read_text().splitlines()
    assert any("class SoftMax" in each for each in text[int(line) - 1 :][:3])
    ways = {row[1] for row in found}
    assert {"CPU: NumPy", "GPU: kernel softmax_ref"} <= ways
    assert main(["ops", "--device", "GPU", "NonMaxSuppression"]) == 0
    assert all(row[1] in ("definition", "GPU: host") for row in rows(capsys))


def test_ops_finds_every_operation_on_a_device(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ops", "--device", "GPU"]) == 0
    found = rows(capsys)
    assert len({row[0] for row in found}) > 200
    assert {row[2].partition("/")[0] for row in found} <= {"polydevice", "polydevice_gpu"}


def test_ops_suggests_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ops", "Rol"]) == 1
    assert "Did you mean 'Roll'" in capsys.readouterr().err


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


def from_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_everything_listed_is_there_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    devices = from_json(capsys, "devices")
    assert "CPU" in [row["device"] for row in devices]
    reports = from_json(capsys, "devices", "--why")
    assert ("CPU.0", "available") in [(row["device"], row["status"]) for row in reports]
    plugins = {row["device"]: row for row in from_json(capsys, "plugins")}
    assert plugins["CPU"]["module"] == "polydevice_cpu"
    operations = {row["operation"]: row for row in from_json(capsys, "ops")}
    assert operations["ReLU"]["onnx"] == "Relu"
    rows = from_json(capsys, "place", str(MODEL), "-d", "HETERO:CPU")
    assert {row["device"] for row in rows if row["type"] == "Convolution"} == {"CPU"}
    assert all(isinstance(row["bytes_in"], int) for row in rows)
    found = from_json(capsys, "explain", str(MODEL), "-b", "1", "-c", "CPU_THREADS_NUM=1")
    assert found["device"] == "CPU"
    assert any("Convolution" in line for line in found["lines"])
    assert main(["explain", str(MODEL), "--batch", "2"]) == 0
    assert "Convolution" in capsys.readouterr().out
    assert main(["explain", str(MODEL)]) == 0
    done = capsys.readouterr()
    assert "the batch is not known and is set to 1" in done.err
    assert "Convolution" in done.out
    assert main(["explain", str(MODEL), "--shape", "[?,3,128,128]", "-b", "1"]) == 1
    assert "sizes must be numbers" in capsys.readouterr().err
    assert main(["place", str(MODEL), "-d", "CPU", "--svg", f"{MODEL}/picture.svg"]) == 1
    assert "--svg" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_get_what_completes(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "polydevice" in capsys.readouterr().out


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("polydevice de", {"devices"}),
        ("polydevice bench -data", {"-data_shape"}),
        ("polydevice bench -hint ct", {"ctput"}),
    ],
)
def test_bash_completes(line: str, found: set[str], tmp_path: Path) -> None:
    """The script that is printed, in a bash that asks it as pressing Tab does."""
    command = tmp_path / "polydevice"
    command.write_text(f"#!{sys.executable}\nfrom polydevice.cli import main\nmain()\n")
    command.chmod(0o755)
    words = line.split()
    script = f"""
        export PATH={shlex.quote(str(tmp_path))}:"$PATH"
        source <(polydevice completion bash)
        COMP_LINE={shlex.quote(line)}; COMP_POINT=${{#COMP_LINE}}; COMP_TYPE=9
        COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}
        _python_argcomplete polydevice {shlex.quote(words[-1])} {words[-2]}
        printf '%s\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert found <= {word.strip() for word in done.stdout.split()}, done


def test_what_is_piped_into_head_ends_quietly() -> None:
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{sys.executable} -m polydevice ops | head -1"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1


def test_what_is_interrupted_ends_with_one_line(monkeypatch, capsys) -> None:
    def pressed(self) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(polydevice.Core, "available_devices", property(pressed))
    assert main(["devices"]) == 130
    assert capsys.readouterr().err == "polydevice: interrupted\n"
