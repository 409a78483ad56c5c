"""Every kernel on the Oclgrind simulator, which sees wild accesses and races between work-items."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KERNELS = "test_kernels and not test_called_kernel and not Integer"
"""Oclgrind 21.10 lacks the absolute value of integers (llvm.abs.i32), which its compiler makes of
what stands behind products of integers."""
CALLED = "test_called_kernel and not Integer and not attention_tiled"
"""The same kernels as functions that another calls. Oclgrind 21.10 computes attention_tiled wrong
then; kernels with barriers are called on NVIDIA's devices alone."""
LANES = "lanes_share and (-8- or 16-f16)"
"""Wider sub-groups share through the same local memory, in more steps, and take 4 to 6 s each."""


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.skipif(shutil.which("oclgrind") is None, reason="oclgrind is not installed")
def test_no_kernel_reads_or_writes_outside_of_its_buffers_or_races(tmp_path):
    log = tmp_path / "oclgrind.log"
    # Vectors of 16 need functions that oclgrind 21.10 lacks, so the narrow modes stand for all;
    # --uninitialized stops at an instruction (freeze) that its compiler makes of every division.
    run = subprocess.run(
        [
            *("oclgrind", "--data-races", "--max-errors", "20", "--log", str(log)),
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("tests/gpu/test_kernels.py", "tests/gpu/test_transposes.py"),
            "tests/gpu/test_sub_groups.py",
            *("-k", f"({KERNELS}) or test_transposes and float32 or {LANES} or {CALLED}"),
        ],
        cwd=ROOT,
        env={
            **os.environ,
            "POLYDEVICE_GPU_DEVICES": "all-gpus,cpu",
            "POLYDEVICE_TEST_MODES": "0,1,2,15",  # 15: a tile that fits its local memory
            "POLYDEVICE_TEST_SEPARATE_BUFFERS": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    reports = log.read_text() if log.exists() else ""
    assert run.returncode == 0, run.stdout[-3000:]
    assert not reports.strip(), reports[:3000]
