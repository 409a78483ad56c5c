"""``polydevice place``: which device runs each node, and why."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from polydevice.benchmark.options.texts import key_and_value, writable_place
from polydevice.commands.output import add_json, number, table
from polydevice.core import Core


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to a parser."""
    add = parser.add_argument
    add("model", help="model file")
    add("-d", "--device", default="HETERO:GPU,CPU", help="such as HETERO:GPU,CPU")
    add("-w", "--weights", help=".bin of an IR, when it has another name")
    add("--svg", metavar="FILE", help="also draw a picture")
    add("-c", "--config", action="append", type=key_and_value, default=[], metavar="KEY=VALUE")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print where the nodes of a model run."""
    from polydevice.inspection.placement_svg import placement_svg

    if options.svg:
        writable_place("--svg", Path(options.svg))
    with Core() as core:
        network = core.read_network(options.model, options.weights)
        rows = core.load_network(network, options.device, dict(options.config)).placement()
    if options.svg:
        Path(options.svg).write_text(placement_svg(network, rows), encoding="utf-8")
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return 0
    headings = ["Node", "Operation", "Device", "Part", "Bytes in", "Reason"]
    cells = [
        [r.node, r.type, r.device, number(r.subgraph, ""), number(r.bytes_in, "?"), r.reason]
        for r in rows
    ]
    table(headings, cells)
    if sys.stdout.isatty():
        devices = Counter(r.device for r in rows if r.device)
        crossing = sum(r.bytes_in or 0 for r in rows)
        counts = ", ".join(f"{count} nodes on {device}" for device, count in devices.items())
        print(f"{counts}; {crossing} bytes cross between devices in one inference.")
    return 0
