"""``polydevice validate``: checks a model file without loading it."""

from __future__ import annotations

import argparse
import json

from polydevice.commands.output import number, table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to a parser."""
    add = parser.add_argument
    add("model", help="model file")
    add("-w", "--weights", help=".bin of an IR, when it has another name")
    add("-d", "--device", action="append", help="ask and require this device")
    add("--limits", nargs="+", default=[], metavar="NAME=NUMBER", help="such as layers=1000")
    add("--json", action="store_true", help="everything, for machines")


def run(options: argparse.Namespace) -> int:
    """Say what a model asks for and which devices could run it; 1 if it is refused."""
    from polydevice.validation import validate

    limits = dict(item.partition("=")[::2] for item in options.limits)
    found = validate(options.model, options.weights, limits=limits, devices=options.device)
    lacking = bool(options.device) and any(found.devices.values())
    if options.json:
        print(json.dumps(found.as_dict(), indent=2))
        return int(not found.is_valid or lacking)
    rows = [["problem", problem.error, problem.message] for problem in found.problems]
    rows += [["file", path, ""] for path in found.files]
    rows += [["count", name, str(number)] for name, number in found.counts.items()]
    rows += [["loop", name, number(trips, "its condition")] for name, trips in found.loops.items()]
    rows += [["operation", name, str(number)] for name, number in sorted(found.operations.items())]
    for device, reasons in found.devices.items():
        rows.append(
            ["device", device, f"cannot run {len(reasons)} nodes" if reasons else "runs all"]
        )
        rows += [["device", f"{device}: {node}", reason] for node, reason in reasons.items()]
    table(["What", "Name", "Value"], rows)
    return int(not found.is_valid or lacking)
