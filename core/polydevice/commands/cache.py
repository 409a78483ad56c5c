"""``polydevice cache``: looks after a folder that CACHE_DIR names."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from polydevice.commands.output import table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to a parser."""
    add = parser.add_argument
    add("action", choices=("info", "verify", "clear"))
    add("folder", help="the folder")


def run(options: argparse.Namespace) -> int:
    """Say what is in a cache folder, check every file, or delete them; 1 if some are bad."""
    from polydevice.files.file_cache import BAD_SUFFIX, KERNELS_SUFFIX, MODELS_SUFFIX, files_of

    folder = Path(options.folder)
    if not folder.is_dir():
        print(f"polydevice: {str(folder)!r} is not a folder", file=sys.stderr)
        return 1
    files = files_of(folder)
    if options.action == "verify":
        bad = [file for file in files if not file.is_good]
        table(["Bad file", "Bytes"], [[str(f.path), str(f.size_bytes)] for f in bad])
        if sys.stdout.isatty():
            print(f"{len(files) - len(bad)} of {len(files)} files are good.")
        return 1 if bad else 0
    if options.action == "clear":
        for file in files:
            file.path.unlink(missing_ok=True)
    kinds = {"compiled kernels": KERNELS_SUFFIX, "networks": MODELS_SUFFIX, "bad": BAD_SUFFIX}
    rows = []
    for kind, suffix in kinds.items():
        sizes = [file.size_bytes for file in files if file.path.suffix == suffix]
        rows.append([kind, str(len(sizes)), str(sum(sizes))])
    table(["Deleted" if options.action == "clear" else "Contents", "Files", "Bytes"], rows)
    return 0
