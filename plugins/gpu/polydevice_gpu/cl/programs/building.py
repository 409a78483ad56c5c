"""Runs in a child process: compile one program and write its binary to a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from polydevice_gpu.cl import library
from polydevice_gpu.cl.probing.bench import ProbeError, open_bench


def main(argument: dict[str, Any], report: Callable[[Any], None]) -> None:
    """Report ``{"built": True}`` with the binary written, or ``{"why": …}``.

    `argument`: ``opencl`` library, ``identity`` and ``twin`` of the device; ``source``, a file;
    ``options``; ``binary``, the file to write.
    """
    library.use(argument["opencl"])
    try:
        bench = open_bench(argument)
        source = Path(argument["source"]).read_text("utf-8")
        program = bench.build(source, options=argument["options"])
    except (LookupError, ProbeError) as error:
        report({"why": str(error)})
        return
    Path(argument["binary"]).write_bytes(bench.binary(program))
    report({"built": True})
