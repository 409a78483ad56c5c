"""`polydevice run --as NAME program.py …`: run a program written for another runtime."""

from __future__ import annotations

import argparse
import importlib
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from polydevice.compat import choose_device
from polydevice.compat.replacement import Replacement
from polydevice.version import __version__

FACADES: dict[str, dict[str, str]] = {
    "onnxruntime": {"onnxruntime": "polydevice.compat.onnxruntime"},
    "inference_engine": {
        "ngraph": "polydevice.compat.ngraph",
        "openvino.inference_engine": "polydevice.compat.inference_engine",
    },
    "openvino": {
        "ngraph": "polydevice.compat.ngraph",
        "openvino.inference_engine": "polydevice.compat.inference_engine",
        "openvino": "polydevice.compat.openvino",
    },
}
"""What --as takes → the modules that are replaced, each with ours."""

_WITH_VALUE = ("--as", "-d", "--device")


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the options of `polydevice run`."""
    command.add_argument(
        "--as", dest="facade", required=True, choices=sorted(FACADES), help="what it imports"
    )
    command.add_argument(
        "-d", "--device", help="run every network there, whatever the program asks for"
    )
    command.add_argument("-m", dest="module", help="run a module, as python -m does")
    command.add_argument("program", nargs="?", help="the program's file")
    command.add_argument(
        "arguments", nargs="*", help="the program's own arguments", metavar="argument"
    )


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Cut the arguments of `polydevice run` behind the program's name: ours, and the program's.

    What follows the name of the program is not looked at, so that its options are its own.
    """
    position = 0
    while position < len(arguments):
        word = arguments[position]
        if word == "-m":
            position += 2
            break
        position += 1
        if word in _WITH_VALUE:
            position += 1
        elif not word.startswith("-"):
            break
    return list(arguments[:position]), list(arguments[position:])


def run(options: argparse.Namespace, arguments: Sequence[str]) -> int:
    """Run the program in this process, as Python would, with our package for its import.

    Raises:
        SystemExit, Exception: what the program raises.
    """
    if (options.module is None) == (options.program is None):
        print("polydevice run: name a program's file, or a module with -m", file=sys.stderr)
        return 2
    if options.program is not None and not Path(options.program).exists():
        print(f"polydevice run: there is no file {options.program!r}", file=sys.stderr)
        return 2
    modules = FACADES[options.facade]
    choose_device(options.device)
    for ours in modules.values():
        importlib.import_module(ours)
    Replacement(modules).install()
    where = f" on {options.device}" if options.device else ""
    print(
        f"polydevice run: {', '.join(modules)} is polydevice {__version__}{where} here",
        file=sys.stderr,
    )
    if options.module is not None:
        sys.argv = [options.module, *arguments]  # runpy puts the file's name in place of the first
        sys.path[0] = str(Path.cwd())
        runpy.run_module(options.module, run_name="__main__", alter_sys=True)
    else:
        sys.argv = [options.program, *arguments]
        sys.path[0] = str(Path(options.program).resolve().parent)
        runpy.run_path(options.program, run_name="__main__")
    return 0
