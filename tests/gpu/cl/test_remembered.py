"""What drivers offered is found again by the next process, and by none after anything changed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from polydevice_gpu.cl import discovery
from polydevice_gpu.cl.discovery import remembered
from polydevice_gpu.cl.discovery.enumeration import enumerate_drivers
from polydevice_gpu.cl.discovery.facts import Enumeration

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="drivers are found through .icd files on Linux"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where nothing is kept yet."""
    monkeypatch.setenv("POLYDEVICE_CACHE_DIR", str(tmp_path / "kept"))
    return tmp_path / "kept" / "gpu-drivers"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Enumeration]:
    """What drivers said each time they were asked."""
    said: list[Enumeration] = []

    def ask(timeout_s: float | None = None) -> Enumeration:
        said.append(enumerate_drivers(timeout_s))
        return said[-1]

    monkeypatch.setattr(discovery, "enumerate_drivers", ask)
    monkeypatch.setattr(discovery, "_found", [])
    return said


def next_process() -> Enumeration:
    discovery._found.clear()
    return discovery.enumerate_once()


def test_next_process_asks_no_driver(folder, asked, fake_driver) -> None:
    fake_driver("good", NAME='"Good GPU"')
    first = next_process()
    assert [device.name for device in first.devices] == ["Good GPU"]
    assert next_process() == first
    assert len(asked) == 1
    discovery.enumerate_once(refresh=True)
    assert len(asked) == 2


def test_it_counts_before_and_after_pyopencl_is_imported(
    folder, asked, fake_driver, monkeypatch
) -> None:
    """Which sets a variable of its own then."""
    fake_driver("good", NAME='"Good GPU"')
    monkeypatch.delenv("PYOPENCL_HOME", raising=False)
    next_process()
    monkeypatch.setenv("PYOPENCL_HOME", "/where/it/is")
    next_process()
    assert len(asked) == 1


def _replaced(library: Path) -> None:
    """As an update does: another file of the same name."""
    other = library.with_suffix(".new")
    other.write_bytes(library.read_bytes())
    other.replace(library)


CHANGES = {
    "driver": lambda folder, library, patch: _replaced(library),
    "variable": lambda folder, library, patch: patch.setenv("CUDA_VISIBLE_DEVICES", "1"),
    "cores": lambda folder, library, patch: patch.setattr(os, "sched_getaffinity", lambda _: {77}),
    "boot": lambda folder, library, patch: patch.setattr(
        remembered, "_STATES", ("/proc/sys/kernel/random/uuid",)
    ),
    "entry cut off": lambda folder, library, patch: _changed(folder, lambda text: text[:-9]),
    "entry of another device": lambda folder, library, patch: _changed(
        folder, lambda text: text.replace(b"Good GPU", b"Fake GPU")
    ),
    "entry that is no object": lambda folder, library, patch: _changed(folder, lambda _: b"[1]"),
    "entry nested deeply": lambda folder, library, patch: _changed(folder, lambda _: b"[" * 90_000),
    "folder that others may write": lambda folder, library, patch: folder.chmod(0o777),
}


def _changed(folder: Path, change) -> None:
    (entry,) = folder.iterdir()
    entry.write_bytes(change(entry.read_bytes()))


@pytest.mark.parametrize("change", CHANGES)
def test_after_a_change_drivers_are_asked(folder, asked, fake_driver, monkeypatch, change) -> None:
    library = fake_driver("good", NAME='"Good GPU"')
    next_process()
    CHANGES[change](folder, library, monkeypatch)
    assert [device.name for device in next_process().devices] == ["Good GPU"]
    assert len(asked) == 2


def test_values_of_other_types_are_refused(folder, asked, fake_driver) -> None:
    fake_driver("good", NAME='"Good GPU"')
    found = next_process()
    wrong = {**vars(found.devices[0]), "max_compute_units": "many"}
    plain = {"devices": [wrong], "findings": []}
    with pytest.raises(ValueError, match="max_compute_units='many' is no int"):
        remembered._parsed(plain)


def test_drivers_that_give_trouble_are_asked_each_time(folder, asked, fake_driver) -> None:
    fake_driver("good", NAME='"Good GPU"')
    fake_driver("crashing", AT_LOAD="abort()")
    next_process()
    next_process()
    assert len(asked) == 2


def test_process_that_dies_of_a_driver_leaves_no_entry(folder, asked, fake_driver) -> None:
    fake_driver("good", NAME='"Good GPU"')
    next_process()
    with pytest.raises(SystemExit), remembered.tried():  # two processes at once: the second
        with remembered.tried():  # finds no entry to take away
            assert remembered.recalled() is None
        raise SystemExit
    assert remembered.recalled() is None
    next_process()
    assert len(asked) == 2
    with remembered.tried():
        assert remembered.recalled() is None
    assert remembered.recalled() is not None


def test_no_more_than_sixteen_entries_are_kept(folder, asked, fake_driver, monkeypatch) -> None:
    fake_driver("good", NAME='"Good GPU"')
    found = enumerate_drivers()
    for number in range(20):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", str(number))
        remembered.keep(found)
    assert len(list(folder.iterdir())) == 16
    assert remembered.recalled() == found


def test_a_folder_that_is_none_costs_only_the_time(folder, asked, fake_driver) -> None:
    fake_driver("good", NAME='"Good GPU"')
    folder.parent.write_text("a file")
    assert [device.name for device in next_process().devices] == ["Good GPU"]
    next_process()
    assert len(asked) == 2


PROGRAM = """if True:
    import sys
    from polydevice_gpu import cl
    from polydevice_gpu.cl import device, library
    from polydevice_gpu.cl.discovery import enumeration
    if "other" in sys.argv:
        library.identities = lambda cl: []
    if "known" in sys.argv:
        enumeration._try_drivers = None  # no child is asked
    admitted = cl.discover().devices[0]
    print(len(device.handles_of(admitted)), admitted.facts.name)
"""


def test_real_processes(folder, real_driver) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", PROGRAM, *arguments]
        environment = {**os.environ, "POLYDEVICE_GPU_DEVICES": "cpu"}
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=60
        )

    first = run()
    assert first.returncode == 0, first.stderr
    other = run("known", "other")  # which sees other devices: nobody is to rely on it
    assert other.stdout == first.stdout, other.stderr
    assert "'NoneType' object is not callable" in run("known").stderr
