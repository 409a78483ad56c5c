"""Networks compiled into a folder: by one of those that want the same one at the same time."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from polydevice import Core
from polydevice.bounds import Bounds, within
from polydevice.errors import InferCancelledError
from polydevice.files.file_cache import MODELS_SUFFIX, FileCache
from tests.cpu.models import build

KEY = bytes(range(32))


def model() -> bytes:
    return build([("Mul", ["x", "w"], ["y"], {})], {"x": (3,)}, ("y",), {"w": np.ones(3, "f4")})


def test_of_several_that_load_one_compiles(tmp_path: Path) -> None:
    everybody = threading.Barrier(4)
    answers: list[np.ndarray] = []
    cached: list[bool] = []

    def work() -> None:
        with Core() as core:
            core.set_config({"CACHE_DIR": str(tmp_path)})
            network = core.read_network(model())
            everybody.wait(60)
            executable = core.load_network(network, "CPU")
            cached.append(executable.from_cache)
            answers.append(executable.infer(np.arange(3, dtype="f4"))["y"])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    np.testing.assert_array_equal(answers, [[0, 1, 2]] * 4)
    assert sorted(cached) == [False, True, True, True]
    assert [path.suffix for path in tmp_path.iterdir()] == [MODELS_SUFFIX]


def test_one_that_fails_lets_the_next_one_try(tmp_path: Path) -> None:
    cache = FileCache(tmp_path, MODELS_SUFFIX, "nothing")
    with pytest.raises(ZeroDivisionError), cache.making(KEY):
        raise ZeroDivisionError
    with cache.making(KEY), cache.making(KEY[::-1]):
        pass
    assert not list(tmp_path.iterdir())


def test_who_waits_can_be_cancelled(tmp_path: Path) -> None:
    cache, bounds = FileCache(tmp_path, MODELS_SUFFIX, "nothing"), Bounds()
    with cache.making(KEY):
        threading.Timer(0.1, bounds.cancel, ("enough",)).start()
        other = FileCache(tmp_path, MODELS_SUFFIX, "nothing")
        with pytest.raises(InferCancelledError, match="enough"), within(bounds), other.making(KEY):
            pytest.fail("two make it")


KILLED = """
import os, sys
from pathlib import Path
from polydevice.files.file_cache import MODELS_SUFFIX, FileCache
with FileCache(Path(sys.argv[1]), MODELS_SUFFIX, "nothing").making(bytes(range(32))):
    print("made", flush=True)
    os.kill(os.getpid(), 9)
"""


@pytest.mark.skipif(os.name != "posix", reason="kills a process by a signal of POSIX")
def test_nobody_waits_for_one_that_was_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    assert subprocess.run(command, capture_output=True, timeout=60, check=False).stdout == b"made\n"
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]
    with FileCache(tmp_path, MODELS_SUFFIX, "nothing").making(KEY):
        pass
    assert not list(tmp_path.iterdir())
