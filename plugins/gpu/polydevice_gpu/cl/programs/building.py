"""Runs in a child process: compile programs and write their binaries to files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from polydevice_gpu.cl import library
from polydevice_gpu.cl.probing.bench import ProbeError, make_bench


def main(argument: dict[str, Any], report: Callable[[Any], None]) -> None:
    """Report ``{"built": name}`` for every binary written, or ``{"why": …}``.

    `argument`: ``opencl`` library, ``identity`` and ``twin`` of the device; ``jobs``, each a name,
    a file with the source, build options, and the file to write.
    """
    library.use(argument["opencl"])
    try:
        bench = make_bench(argument)  # whose programs bring their options
    except LookupError as error:
        report({"why": str(error)})
        return
    for name, source, options, binary in argument["jobs"]:
        try:
            program = bench.build(Path(source).read_text("utf-8"), options=options)
        except ProbeError as error:
            report({"why": f"{name}: {error}"})
            continue
        Path(binary).write_bytes(bench.binary(program))
        report({"built": name})
