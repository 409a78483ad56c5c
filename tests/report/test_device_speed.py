"""`polydevice devices --measure`: what is measured, how it is kept, and who tells it."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from polydevice import Core
from polydevice.cli import main
from polydevice.errors import ModelFileError
from polydevice.inspection import measured
from polydevice.inspection.measured import Speed
from polydevice.report import device_speed, peaks

SPEED = Speed(gops={"f32": 12.5, "f16": 25}, bytes_per_s=1e10, launch_us=3, copy_us=4)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, and networks that are small: what matters is what is told."""
    monkeypatch.setenv("POLYDEVICE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(peaks, "_SIZES", (64,))
    monkeypatch.setattr(peaks, "_ELEMENTS", 1 << 14)
    monkeypatch.setattr(device_speed, "_SIZES", (64,))
    monkeypatch.setattr(device_speed, "_INFERENCES", 3)
    return tmp_path / "device-speed"


def test_what_a_device_can_is_measured_and_kept(device: str, capsys) -> None:
    assert main(["devices", "--measure", device, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["device"] == device
    kinds = {"f32", "f16"} if device == "GPU" else {"f32", "i8"}
    assert kinds <= row["gops"].keys()
    assert all(row["gops"][kind] > 0 for kind in kinds) and row["bytes_per_s"] > 0
    with Core() as core:
        kept = measured.load(core.device_identity(device))
        assert kept is not None and kept.model_dump() == {k: row[k] for k in kept.model_dump()}
        if device == "GPU":
            nominal = core.get_metric("GPU", "DEVICE_GOPS")
            assert nominal["FP32_MEASURED"] == row["gops"]["f32"]
            assert nominal["FP16_MEASURED"] == row["gops"]["f16"] and nominal["FP32"] >= 0
    assert main(["devices", "--measure", device]) == 0
    assert device in capsys.readouterr().out


def test_what_is_kept_holds_for_one_device_and_driver(folder: Path) -> None:
    path = measured.store("device, driver 1", SPEED)
    assert path.parent == folder
    assert measured.load("device, driver 1") == SPEED
    assert measured.load("device, driver 2") is None


@pytest.mark.parametrize("content", ["", "no JSON", "[]", '{"gops": 3}', '{"launch_us": -1}'])
def test_what_cannot_be_understood_is_not_told(content: str) -> None:
    path = measured.store("device", SPEED)
    path.write_text(content)
    assert measured.load("device") is None


@pytest.mark.skipif(os.name != "posix", reason="modes of folders")
def test_a_folder_that_others_may_write_is_not_trusted(folder: Path) -> None:
    measured.store("device", SPEED)
    folder.chmod(folder.stat().st_mode | stat.S_IWOTH)
    assert measured.load("device") is None
    with pytest.raises(ModelFileError, match="writable for other users"):
        measured.store("device", SPEED)
