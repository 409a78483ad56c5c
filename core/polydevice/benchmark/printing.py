"""What ``polydevice bench`` prints while it works: log lines, and a progress bar."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polydevice.benchmark.measure import Progress


def info(text: str) -> None:
    """Print an information line."""
    print(f"[ INFO ] {text}", flush=True)


def warn(text: str) -> None:
    """Print a warning line."""
    print(f"[ WARNING ] {text}", flush=True)


@contextmanager
def progress_bar(title: str, options: argparse.Namespace) -> Iterator[Progress]:
    """A bar on a terminal; into a pipe, or with -stream_output, plain lines when asked for."""
    wanted = options.progress or options.stream_output
    if options.stream_output or not sys.stdout.isatty():
        last = [-1]

        def plain(done: float) -> None:
            tenth = int(done * 10)
            if wanted and tenth > last[0]:
                last[0] = tenth
                print(f"{title}: {tenth * 10} %", flush=True)

        yield plain
        return
    from rich.progress import Progress as Bar

    with Bar(transient=True) as bar:
        task = bar.add_task(title, total=1.0)
        yield lambda done: bar.update(task, completed=done)
