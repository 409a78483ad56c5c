"""``polydevice report``: an HTML file of what ``polydevice bench --json`` wrote."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from polydevice.errors import OptionValueError
from polydevice.report.page import page
from polydevice.report.run import Run, read_runs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="of `polydevice bench --json`")
    parser.add_argument("-o", "--output", default="report.html", metavar="FILE", help="to write")


def run(options: argparse.Namespace) -> int:
    """Write the report; files with one run each are titled by their names as well."""
    runs: list[Run] = []
    titles: list[str] = []
    for path in options.files:
        for found in read_runs(path):
            runs.append(found)
            titles.append(f"{Path(path).stem}: {found.title}")
    write_report(Path(options.output), runs, titles if len(options.files) > 1 else ())
    sys.stdout.write(f"{options.output}\n")
    return 0


def write_report(path: Path, runs: Sequence[Run], titles: Sequence[str] = ()) -> None:
    """Write an HTML file.

    Raises:
        OptionValueError: it cannot be written.
    """
    try:
        path.write_text(page(runs, titles), encoding="utf-8")
    except OSError as error:
        raise OptionValueError(f"{str(path)!r} cannot be written: {error.strerror}") from None
