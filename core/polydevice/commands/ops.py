"""``polydevice ops``: the operations, where they are written, and how devices run them."""

from __future__ import annotations

import argparse

from polydevice.commands.output import add_json, show
from polydevice.core import Core
from polydevice.errors import OptionValueError, nearest
from polydevice.inspection.source_place import source_place
from polydevice.plugin import Line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to a parser."""
    add = parser.add_argument
    add_json(parser)
    add("name", nargs="?", help="one operation: where it is and how it runs")
    add("-d", "--device", help="how this device runs operations, such as GPU")


def run(options: argparse.Namespace) -> int:
    """Print the operations, or how devices run them."""
    import polydevice.ops  # noqa: F401 - importing it defines every operation
    from polydevice.devices.registry import Registry
    from polydevice.ops.op import operations

    Registry().define_operations(seen=0)
    if options.name or options.device:
        return _places(options)
    rows = {
        (
            cls.type,
            f"{cls.domain} {', '.join(map(str, cls.since))}",
            ", ".join(cls.onnx_types),
            (cls.__doc__ or "").strip().partition("\n")[0],
        )
        for cls in operations()
    }
    keys = {
        "operation": "Operation",
        "versions": "Set, versions",
        "onnx": "ONNX",
        "computes": "What it computes",
    }
    show(options, keys, [dict(zip(keys, row)) for row in sorted(rows)])
    return 0


def _places(options: argparse.Namespace) -> int:
    """Say where operations are written, and how a device runs them."""
    from polydevice.ops.op import operations

    found = list(operations())
    if options.name:
        wanted = options.name.lower()
        named = [(cls, {cls.type, *cls.onnx_types}) for cls in found]
        found = [cls for cls, names in named if wanted in {name.lower() for name in names}]
        if not found:
            known = sorted(set().union(*(names for _, names in named)))
            raise OptionValueError(
                f"no operation is called {options.name!r}.{nearest(options.name, known)} "
                "`polydevice ops` lists all"
            )
    rows = []
    with Core() as core:
        devices = [options.device] if options.device else ["CPU", "GPU"]
        for cls in sorted(found, key=lambda cls: (cls.type, cls.since)):
            name = f"{cls.type} {cls.domain}{'/'.join(map(str, cls.since))}"
            if options.name:
                rows.append(_way(name, Line("definition", source_place(cls))))
            for device in devices:
                lines = core.describe_operation(cls, device) or [Line("not run", "")]
                rows += [_way(name, line, f"{device}: ") for line in lines]
    headings = {"operation": "Operation", "how": "How", "where": "Where", "when": "When"}
    show(options, headings, rows)
    return 0


def _way(name: str, line: Line, device: str = "") -> dict[str, str]:
    how = device + line.subject
    return {"operation": name, "how": how, "where": line.answer, "when": line.reason}
