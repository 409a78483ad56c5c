"""Files that are written whole or not at all, and what killed writers leave behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from polydevice.files import cache_folder

_KILLED = """
import os, sys
from pathlib import Path
from polydevice.files import cache_folder
os.fsync = lambda _: os.kill(os.getpid(), 9)  # after the content, before the file has its name
cache_folder.write_atomically(Path(sys.argv[1]) / "entry.bin", b"half")
"""


def _kill_a_writer(folder) -> None:
    done = subprocess.run([sys.executable, "-c", _KILLED, str(folder)], check=False, timeout=60)
    assert done.returncode == -9


def _write(folder, content: bytes) -> None:
    cache_folder._remove_abandoned.cache_clear()  # as a new process
    cache_folder.write_atomically(folder / "entry.bin", content)


def test_what_a_killed_writer_left_goes_when_it_is_old(tmp_path):
    _kill_a_writer(tmp_path)
    (left,) = tmp_path.iterdir()
    an_hour_ago = time.time() - 3700
    os.utime(left, (an_hour_ago, an_hour_ago))
    _write(tmp_path, b"whole")
    assert [path.name for path in tmp_path.iterdir()] == ["entry.bin"]
    assert (tmp_path / "entry.bin").read_bytes() == b"whole"


def test_what_another_process_is_writing_stays(tmp_path):
    _kill_a_writer(tmp_path)
    _write(tmp_path, b"whole")
    assert len(list(tmp_path.iterdir())) == 2


def test_files_of_others_stay(tmp_path):
    long_ago = time.time() - 1e6
    for name in (".profile", "notes.writing", ".entry.bin.tmp"):
        (tmp_path / name).write_text("mine")
        os.utime(tmp_path / name, (long_ago, long_ago))
    (tmp_path / ".folder.writing").mkdir()
    _write(tmp_path, b"whole")
    assert len(list(tmp_path.iterdir())) == 5
