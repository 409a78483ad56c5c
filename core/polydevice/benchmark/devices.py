"""``polydevice bench`` on every device of the command line, and what is written at the end."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from polydevice.benchmark import report
from polydevice.benchmark.application import Application
from polydevice.benchmark.options.arguments import complete
from polydevice.benchmark.options.texts import writable_place
from polydevice.benchmark.printing import info, warn
from polydevice.errors import ModelFileError, OptionValueError, PolydeviceError
from polydevice.report.command import write_report
from polydevice.report.run import runs_of
from polydevice.trace import Trace


def run(options: argparse.Namespace) -> int:
    """Measure every device of the command line; returns the exit status."""
    complete(options)
    if not Path(options.path_to_model).is_file():
        raise ModelFileError(f"model file {options.path_to_model!r} does not exist")
    _check_places(options)
    results: list[dict[str, Any]] = []
    status = 0
    trace = Trace(batches_every=options.trace_every) if options.trace else None
    for device in options.target_device.split():
        application = Application(options, device, trace)
        try:
            results.append(application.run())
        except PolydeviceError as error:
            print(f"[ ERROR ] {error}", file=sys.stderr)
            results.append({**application.figures, "error": str(error)})
            status = 1
    if len(results) > 1:
        _print_table(results)
    if options.json:
        report.write_json(Path(options.json), {"results": results})
    if trace is not None:
        _write_trace(trace, options.trace)
    if options.report:
        write_report(Path(options.report), runs_of(results, options.report))
        info(f"The report is in {options.report}")
    return status


def _check_places(options: argparse.Namespace) -> None:
    """Make the folders of what is written at the end.

    Raises:
        OptionValueError: one cannot be made, or written to.
    """
    for name in ("json", "exec_graph_path", "dump_config", "report", "trace"):
        if path := getattr(options, name):
            writable_place(f"-{name}", Path(path))
    if options.report_type and options.report_folder:
        writable_place("-report_folder", Path(options.report_folder) / "benchmark_report.csv")


def _write_trace(trace: Trace, path: str) -> None:
    """Write a trace, and say what is not in it.

    Raises:
        OptionValueError: it cannot be written.
    """
    try:
        trace.write(path)
    except OSError as error:
        raise OptionValueError(f"--trace {path!r} cannot be written: {error.strerror}") from None
    info(f"The trace is in {path}; open it at ui.perfetto.dev or chrome://tracing")
    if trace.left_out:
        warn(f"{trace.left_out} events were left out: the trace is full; measure a shorter time")


def _print_table(results: Sequence[Mapping[str, Any]]) -> None:
    print(f"{'device':<24}{'p50 ms':>10}{'p90 ms':>10}{'p99 ms':>10}{'FPS':>12}")
    for row in results:
        if "throughput (FPS)" not in row:
            outcome = "failed" if "error" in row else "compiled"
            print(f"{row['device']:<24}{outcome:>10}")
            continue
        cells = "".join(f"{row[f'latency p{p} (ms)']:>10.2f}" for p in (50, 90, 99))
        print(f"{row['device']:<24}{cells}{row['throughput (FPS)']:>12.2f}")
