"""What commands print: tables for people, lines with tabs for programs, JSON for machines."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence


def add_json(command: argparse.ArgumentParser) -> None:
    """Add ``--json``."""
    command.add_argument("--json", action="store_true", help="the same for machines")


def show(
    options: argparse.Namespace, headings: Mapping[str, str], rows: Sequence[Mapping[str, str]]
) -> None:
    """Print rows, as JSON with --json.

    Args:
        options: the command line.
        headings: key of a row → heading of the column.
        rows: key → cell.
    """
    if options.json:
        print(json.dumps([dict(row) for row in rows], indent=2))
    else:
        table(list(headings.values()), [[row[key] for key in headings] for row in rows])


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table on a terminal, else a line a row with tabs between the columns."""
    if not sys.stdout.isatty():
        for row in rows:
            print("\t".join(" ".join(cell.split()) for cell in row))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(cell.replace("[", r"\[") for cell in row))
    Console().print(table)


def number(value: int | None, unknown: str) -> str:
    """Write a number, or what stands for one that is not known."""
    return unknown if value is None else str(value)
