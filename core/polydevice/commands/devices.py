"""``polydevice devices``: what can be used now, what was left out, and how fast it is."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from polydevice.commands.output import add_json, show, table
from polydevice.core import Core
from polydevice.errors import PolydeviceError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to a parser."""
    add = parser.add_argument
    add("--why", action="store_true", help="also what was left out, why, and what to do about it")
    add(
        "--measure",
        nargs="*",
        metavar="DEVICE",
        help="measure rates, bandwidth and latencies of these devices, or of all, and keep them",
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the devices; the exit status is 1 without any."""
    with Core() as core:
        names = core.available_devices
        if options.measure is not None:
            return _measure(options, core, options.measure or names)
        if not options.why:
            found = [{"device": name, "name": _full_name(core, name)} for name in names]
            show(options, {"device": "Device", "name": "Name"}, found)
            if sys.stdout.isatty() and not options.json:
                print("`polydevice devices --why` says what was left out.")
            return 0 if names else 1
        reports = core.explain_devices()
    if options.json:
        print(json.dumps([asdict(report) for report in reports], indent=2))
    elif not sys.stdout.isatty():
        table([], [[r.device or "-", r.subject, r.status, r.reason, r.fix] for r in reports])
    else:
        for report in reports:
            place = f" ({report.device})" * bool(report.device)
            print(f"{report.status}: {report.subject}{place}")
            if report.reason:
                print(f"    why: {report.reason}")
            if report.fix:
                print(f"    fix: {report.fix}")
    return 0 if names else 1


def _measure(options: argparse.Namespace, core: Core, names: Sequence[str]) -> int:
    """Measure devices, keep what was found for their drivers, and print it."""
    from polydevice.inspection import measured
    from polydevice.report.device_speed import measure_speed

    found = {}
    for name in names:
        found[name] = measure_speed(core, name)
        measured.store(core.device_identity(name), found[name])
    if options.json:
        rows = [{"device": name, **speed.model_dump()} for name, speed in found.items()]
        print(json.dumps(rows, indent=2))
        return 0 if rows else 1
    headings = ["Device", *(f"{kind} Gop/s" for kind in _RATES), "GB/s", "Launch µs", "Copy µs"]
    cells = []
    for name, speed in found.items():
        rates = [f"{speed.gops[kind]:.1f}" if kind in speed.gops else "" for kind in _RATES]
        times = [f"{speed.launch_us:.1f}", f"{speed.copy_us:.1f}"]
        cells.append([name, *rates, f"{speed.bytes_per_s / 1e9:.1f}", *times])
    table(headings, cells)
    return 0 if found else 1


_RATES = ("f32", "f16", "bf16", "i8")


def _full_name(core: Core, device: str) -> str:
    try:
        return str(core.get_metric(device, "FULL_DEVICE_NAME"))
    except PolydeviceError:
        return ""  # a device need not have a longer name
