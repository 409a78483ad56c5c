"""``polydevice completion``: what lets a shell complete commands; see docs/quickstart.md."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to a parser."""
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))


def run(options: argparse.Namespace) -> int:
    """Print a shell's code."""
    from argcomplete.shell_integration import shellcode

    print(shellcode(["polydevice"], shell=options.shell))
    return 0
