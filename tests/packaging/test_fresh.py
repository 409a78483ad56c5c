"""`scripts/fresh` leaves nothing behind, however it ends; a program stands in for mmdebstrap."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENDLESS = "touch $STARTED\nexec sleep $SECONDS_TO_SLEEP"


def can_make_namespaces() -> bool:
    needed = ("apt-config", "apt-get", "git", "setpriv", "unshare")
    if os.geteuid() != 0 or not all(map(shutil.which, needed)):
        return False
    tried = ["unshare", "--mount", "--pid", "--fork", "true"]
    return subprocess.run(tried, capture_output=True, check=False).returncode == 0


pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not can_make_namespaces(), reason="needs root, apt, git and namespaces"),
]


@pytest.fixture
def start(tmp_path: Path) -> Callable[[str], subprocess.Popen[str]]:
    """Start `scripts/fresh` with these lines of shell as mmdebstrap, and its roots in a folder."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "roots").mkdir()
    environment = {
        **os.environ,
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "TMPDIR": str(tmp_path / "roots"),
        "STARTED": str(tmp_path / "started"),
        "SECONDS_TO_SLEEP": f"60.{os.getpid()}",
    }

    def started(lines: str) -> subprocess.Popen[str]:
        program = tmp_path / "bin" / "mmdebstrap"
        program.write_text(f"#!/bin/sh\n{lines}\n")
        program.chmod(0o755)
        return subprocess.Popen(
            # Shells in the background ignore SIGINT, and so would what they start.
            ["env", "--default-signal=INT", ROOT / "scripts" / "fresh", "bookworm"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return started


def wait_for(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end
        time.sleep(0.02)


def is_running() -> bool:
    """Whether the stand-in is still there."""
    asked = f"60.{os.getpid()}".encode()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if asked in path.read_bytes().split(b"\0"):
                return True
        except OSError:  # it has ended
            continue
    return False


@pytest.mark.parametrize(
    ("sent", "status", "told"),
    [
        (signal.SIGINT, 130, "Interrupted: removing"),
        (signal.SIGTERM, 143, "Ended from outside: removing"),
    ],
)
def test_what_interrupts_it_leaves_nothing(start, tmp_path, sent, status, told) -> None:
    running = start(ENDLESS)
    wait_for((tmp_path / "started").exists)
    (folder,) = (tmp_path / "roots").iterdir()
    running.send_signal(sent)
    output, _ = running.communicate(timeout=60)
    assert (running.returncode, f"{told} {folder}" in output) == (status, True)
    assert not any((tmp_path / "roots").iterdir())
    assert not is_running()


def test_what_a_kill_leaves_the_next_run_removes(start, tmp_path) -> None:
    running = start(ENDLESS)
    wait_for((tmp_path / "started").exists)
    (folder,) = (tmp_path / "roots").iterdir()
    running.kill()
    running.communicate(timeout=60)
    wait_for(lambda: not is_running())
    assert folder.exists()
    a_while_ago = time.time() - 120
    os.utime(folder, (a_while_ago, a_while_ago))
    failing = start("echo 'E: no such suite' >&2; exit 1")
    output, _ = failing.communicate(timeout=60)
    assert failing.returncode == 1
    assert "E: no such suite" in output
    assert "no root of bookworm could be made" in output
    assert not any((tmp_path / "roots").iterdir())
