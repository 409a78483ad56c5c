"""``polydevice bench``: measures a network here, or a server's."""

from __future__ import annotations

import argparse

from polydevice.benchmark.options.arguments import add_arguments

__all__ = ["add_arguments", "run"]


def run(options: argparse.Namespace) -> int:
    """Measure; the modules that do are imported when they are needed."""
    if options.server:
        from polydevice.serve import measure

        return measure.run(options)
    from polydevice.benchmark.devices import run

    return run(options)
