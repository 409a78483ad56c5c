"""The command line: ``polydevice devices | plugins | ops | validate | place | bench | …``.

Tables on a terminal; when the output goes into a pipe or file, one line a row with tabs between
the columns and no heading, for `grep`, `cut` and `awk`.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

from polydevice.commands import (
    bench,
    cache,
    completion,
    devices,
    doctor,
    explain,
    ops,
    place,
    plugins,
    tune,
    validate,
)
from polydevice.comparison import command as comparison
from polydevice.compat import launcher
from polydevice.errors import PolydeviceError, nearest
from polydevice.report import command as report
from polydevice.serve import command as serving
from polydevice.version import __version__

_COMMANDS = (
    ("devices", devices, "list the devices that can be used now"),
    ("doctor", doctor, "one page about this machine for a bug report"),
    ("plugins", plugins, "list the installed plugins and their state"),
    ("ops", ops, "list the operations that networks may use"),
    ("place", place, "say which device runs each node, and why"),
    ("explain", explain, "say what becomes of each layer on a device"),
    ("completion", completion, "print what lets a shell complete commands; see docs/quickstart.md"),
    (
        "validate",
        validate,
        "check a model file without loading it; the exit status is 1 if it fails",
    ),
    ("bench", bench, "measure a network, like benchmark_app"),
    ("report", report, "write an HTML page of what `bench --json` measured, once or twice"),
    ("compare", comparison, "compare a model on a device with a reference, value by value"),
    ("serve", serving, "answer requests over the network: Open Inference Protocol, REST and gRPC"),
    ("cache", cache, "look after a folder that CACHE_DIR names"),
    ("tune", tune, "find the fastest kernels for a model's layers"),
)
"""Name, module with `add_arguments` and `run`, help."""


class _Parser(argparse.ArgumentParser):
    """A parser that knows every option by its whole name only.

    By itself argparse reads the unknown ``-inferences_only`` as ``-i nferences_only``.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **settings})

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        known = self._option_string_actions
        for text in args or ():
            if text == "--":
                break
            name = text.partition("=")[0]
            if re.match("--?[A-Za-z]", name) and name not in known:
                self.error(f"unknown option {name}.{nearest(name, known)}")
        return super().parse_known_args(args, namespace)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = _parser()
    if "_ARGCOMPLETE" in os.environ:  # a shell asks, through what `completion` printed
        import argcomplete

        argcomplete.autocomplete(parser)
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["run"]:  # outside of the `try` below: what it raises is the program's own
        own, rest = launcher.split(given[1:])
        return launcher.run(parser.parse_args(["run", *own]), rest)
    options = parser.parse_args(given)
    try:
        status: int = options.run(options)
        sys.stdout.flush()  # here, where a closed pipe is no error
    except PolydeviceError as error:
        print(f"polydevice: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("polydevice: interrupted", file=sys.stderr)
        return 130  # what shells expect of Ctrl-C
    except BrokenPipeError:  # `polydevice ops | head`: what is left has nowhere to go
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # a file of the command line, which went away or cannot be written
        print(f"polydevice: {error}", file=sys.stderr)
        return 1
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="polydevice", description="Inference on every device: what is here and what it can do."
    )
    parser.add_argument("--version", action="version", version=f"polydevice {__version__}")
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=_Parser
    )
    for name, module, text in _COMMANDS:
        # `bench` has benchmark_app's own -h
        command = commands.add_parser(name, help=text, add_help=module is not bench)
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    command = commands.add_parser("run", help="run a program that was written for another runtime")
    launcher.add_arguments(command)
    return parser
