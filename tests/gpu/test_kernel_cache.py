"""CACHE_DIR: a second process loads a network without compiling, and answers the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

MODEL = Path(__file__).parents[1] / "models" / "data" / "wechat_qr_sr.xml"

PROGRAM = """
import sys
import numpy as np
from polydevice import Core
image = np.random.default_rng(5).random((1, 1, 224, 224), np.float32)
with Core() as core:
    network = core.load_network(sys.argv[1], "GPU", {"CACHE_DIR": sys.argv[2]})
    (answer,) = network.infer({"data": image}).values()
answer.tofile(sys.argv[3])
"""


def test_second_process_compiles_nothing_and_answers_the_same(opencl, tmp_path) -> None:
    answers = []
    for forbid in ("0", "1"):
        answer = tmp_path / f"answer{forbid}"
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, MODEL, tmp_path / "kernels", answer],
            env={**os.environ, "POLYDEVICE_NO_COMPILE": forbid},
            check=False,
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, done.stderr
        answers.append(answer.read_bytes())
    assert len(answers[0]) == 4 * 447 * 447
    assert answers[0] == answers[1]


def test_what_is_not_in_the_cache_is_named(opencl, tmp_path, monkeypatch) -> None:
    from polydevice import Core
    from polydevice.errors import KernelBuildError

    monkeypatch.setenv("POLYDEVICE_NO_COMPILE", "1")
    with Core() as core, pytest.raises(KernelBuildError, match=r"is not in the cache, and POLYDEV"):
        core.load_network(MODEL, "GPU", {"CACHE_DIR": str(tmp_path / "kernels")})


def test_32_loads_in_8_processes_at_once_leave_one_good_entry_each(opencl, tmp_path) -> None:
    """All start cold at the same moment, through the plugin."""
    from polydevice.file_cache import files_of

    program = """if True:
        import sys, threading
        from polydevice import Core
        def load(core):
            core.load_network(sys.argv[1], "GPU", {"CACHE_DIR": sys.argv[2]})
        cores = [Core() for _ in range(4)]
        threads = [threading.Thread(target=load, args=(core,)) for core in cores]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        [core.close() for core in cores]
    """
    folder = tmp_path / "kernels"
    command = [sys.executable, "-c", program, str(MODEL), str(folder)]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(8)]
    errors = [process.communicate(timeout=300)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * 8, errors
    files = files_of(folder)
    assert len(files) > 3 and all(file.is_good for file in files)
    assert len(list(folder.iterdir())) == len(files)  # nothing half-written is left
    assert all(path.suffix == ".cl_cache" for path in folder.iterdir())


@pytest.mark.parametrize("damage", ["cut", "foreign", "empty"])
def test_damaged_entries_are_rebuilt_and_the_answer_stays(opencl, tmp_path, damage) -> None:
    import numpy as np

    from polydevice import Core

    image = {"data": np.random.default_rng(5).random((1, 1, 224, 224), np.float32)}

    def answer() -> np.ndarray:
        with Core() as core:
            network = core.load_network(MODEL, "GPU", {"CACHE_DIR": str(tmp_path)})
            return next(iter(network.infer(image).values()))

    right = answer()
    files = sorted(tmp_path.glob("*.cl_cache"))
    for path in files:
        content = path.read_bytes()
        path.write_bytes({"cut": content[:-7], "foreign": b"\x7fELF" * 99, "empty": b""}[damage])
    assert np.array_equal(answer(), right)
    assert sorted(tmp_path.glob("*.cl_cache")) == files
    assert len(list(tmp_path.glob("*.bad"))) == len(files)


@pytest.mark.parametrize("problem", ["full", "vanished", "read-only"])
def test_folder_that_fails_costs_one_warning(opencl, tmp_path, monkeypatch, problem) -> None:
    import shutil
    import warnings

    from polydevice import Core, cache_folder

    folder = tmp_path / "kernels"
    real = cache_folder.write_atomically

    def write(path, content) -> None:
        if problem == "full":
            raise OSError(28, "No space left on device")
        if problem == "read-only":
            raise OSError(30, "Read-only file system")
        shutil.rmtree(folder, ignore_errors=True)
        real(path, content)

    monkeypatch.setattr(cache_folder, "write_atomically", write)
    with warnings.catch_warnings(record=True) as caught, Core() as core:
        warnings.simplefilter("always")
        core.load_network(MODEL, "GPU", {"CACHE_DIR": str(folder)})
    found = [str(w.message) for w in caught if "are not kept" in str(w.message)]
    assert len(found) == 1 and "choose another CACHE_DIR" in found[0]
