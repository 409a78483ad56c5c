"""Without the oneDNN library everything still runs, on NumPy, with one message that says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_real_network_runs_on_numpy() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "samples/classify.py", "-d", "CPU"],
        env={**os.environ, "DNNL_LIB": "/no/such/libdnnl.so.3"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Egyptian cat" in done.stdout.splitlines()[2]
    assert done.stderr.count("CPU device computes with NumPy alone") == 1
    assert "onednn-cpu-gomp" in done.stderr
