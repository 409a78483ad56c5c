"""What importing polydevice costs; tests/core checks what it does not import."""

from __future__ import annotations

import subprocess
import sys
import time


def best_of_five(code: str) -> float:
    times = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        times.append(time.perf_counter() - start)
    return min(times)


def test_core_is_made_quickly() -> None:
    """At most 0.3 s more than Python with NumPy; the best of five, as machines are shared."""
    assert best_of_five("import polydevice; polydevice.Core()") - best_of_five("import numpy") < 0.3
