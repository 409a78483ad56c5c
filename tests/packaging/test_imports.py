"""What importing polydevice costs; tests/core checks what it does not import."""

from __future__ import annotations

import subprocess
import sys

MEASURE = "import time; start = time.process_time(); {}; print(time.process_time() - start)"


def cpu_seconds(code: str) -> float:
    """Processor time, the best of five: other programs on the machine must not count."""
    command = [sys.executable, "-c", MEASURE.format(code)]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(5)]
    return min(float(run.stdout) for run in runs)


def test_core_is_made_quickly() -> None:
    """At most 0.3 s, the import of NumPy not counted."""
    assert cpu_seconds("import numpy; import polydevice; polydevice.Core()") < 0.3 + cpu_seconds(
        "import numpy"
    )
