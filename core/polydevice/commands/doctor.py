"""``polydevice doctor``: one page about this machine to paste into a bug report.

It never fails: what cannot be found out is a line that says so. Drivers are asked in child
processes and within a time limit, so the whole takes less than 3 s (more where other programs keep
the machine busy: waiting for a free core does not count as a driver's silence).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from polydevice.commands.output import add_json
from polydevice.plugin import Line, Section
from polydevice.version import __version__

LIMIT_S = 2.0
"""How long plugins may take together to say what they know about their devices."""

_VARIABLES = re.compile(
    r"POLYDEVICE_|OCL_|OPENCL_|PYOPENCL_|POCL_|CL_CONFIG_|ONEDNN_|DNNL_|OMP_NUM_THREADS$|NVIDIA_"
    r"|RUSTICL_|CUDA_VISIBLE_DEVICES$|LD_PRELOAD$|LD_LIBRARY_PATH$|VIRTUAL_ENV$|CONDA_PREFIX$"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to a parser."""
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the page."""
    sections = examine()
    print(as_json(sections) if options.json else page(sections))
    return 0


def examine(seconds: float = LIMIT_S) -> list[Section]:
    """Return everything that is known about this machine, in the order of the page.

    Args:
        seconds: time limit for what devices have to say.
    """
    sections = [
        _section("Python", _python),
        _section("Packages", _packages),
        _section("Environment variables", _variables),
        _section("Cache folder", _cache),
    ]
    return [*sections, *_devices(seconds)]


def page(sections: Sequence[Section]) -> str:
    """Write sections as text."""
    lines = [f"polydevice {__version__}, doctor"]
    for section in sections:
        lines += ["", section.title]
        for line in section.lines:
            reason = f": {line.reason}" if line.reason and line.answer else line.reason
            lines.append(f"  {line.subject}: {line.answer}{reason}")
            lines += [f"      fix: {line.fix}"] if line.fix else []
    return "\n".join(lines)


def as_json(sections: Sequence[Section]) -> str:
    """Write sections as JSON: ``{"polydevice": version, "sections": [{"title", "lines"}]}``."""
    content = {"polydevice": __version__, "sections": [asdict(section) for section in sections]}
    return json.dumps(content, indent=1)


def _section(title: str, lines: Callable[[], Iterator[Line]]) -> Section:
    """Collect lines; an exception is one of them."""
    found: list[Line] = []
    try:
        found.extend(lines())
    except Exception as error:  # noqa: BLE001 - whatever is wrong here is what the page is for
        found.append(Line("cannot be found out", repr(error)))
    return Section(title, tuple(found))


def _python() -> Iterator[Line]:
    yield Line("version", f"{platform.python_implementation()} {platform.python_version()}")
    yield Line("executable", sys.executable or "none: the program embeds Python")
    yield Line("in an environment", "yes" if sys.prefix != sys.base_prefix else "no", sys.prefix)
    yield Line("system", f"{_distribution()}, kernel {platform.release()}, {platform.machine()}")
    yield Line("libc", " ".join(platform.libc_ver()).strip() or "unknown")
    yield Line("processor cores", str(os.cpu_count()))


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()


def _packages() -> Iterator[Line]:
    import importlib_metadata as metadata

    yield Line("polydevice", __version__, str(Path(__file__).parents[1]))
    present, missing = [], []
    for requirement in metadata.requires("polydevice") or []:
        rule, _, marker = requirement.partition(";")
        name = re.split(r"[^A-Za-z0-9._-]", rule.strip(), maxsplit=1)[0]
        try:
            present.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            if not marker:  # an extra's, or another platform's
                missing.append(Line(name, "missing", rule, f"pip install '{rule.strip()}'"))
    yield Line("installed", ", ".join(sorted(set(present), key=str.lower)))
    yield from missing


def _variables() -> Iterator[Line]:
    found = sorted(name for name in os.environ if _VARIABLES.match(name))
    for name in found:
        yield Line(name, os.environ[name])
    if not found:
        yield Line("none", "that polydevice or an OpenCL loader reads")


def _cache() -> Iterator[Line]:
    from polydevice.files import cache_folder

    folder = cache_folder.default_folder()
    why = cache_folder.why_unusable(folder)
    if why:
        fix = f"chmod or chown it, or name another folder in {cache_folder.VARIABLE}"
        yield Line(
            str(folder), "cannot be used", f"{why}; devices are probed in every process", fix
        )
        return
    info = folder.stat()
    rights = f"mode {info.st_mode & 0o777:o}, owner {info.st_uid}"
    if os.access(folder, os.W_OK):
        yield Line(str(folder), "writable", rights)
    else:
        fix = f"name another folder in {cache_folder.VARIABLE}"
        yield Line(str(folder), "read only", rights, fix)
    for sub in sorted(path for path in folder.iterdir() if path.is_dir()):
        why = cache_folder.why_unusable(sub)
        yield Line(f"{sub.name}/", f"cannot be used: {why}" if why else f"{_files(sub)} files")


def _files(folder: Path) -> int:
    return sum(1 for path in folder.iterdir() if path.is_file())


def _devices(seconds: float) -> list[Section]:
    from polydevice.core import Core

    start = time.monotonic()
    try:
        with Core() as core:
            sections = core.diagnose_devices(seconds)
    except Exception as error:  # noqa: BLE001 - whatever is wrong here is what the page is for
        return [Section("Devices", (Line("cannot be found out", repr(error)),))]
    took = f"{time.monotonic() - start:.1f} s"
    return [*sections, Section("Time", (Line("asking all devices took", took),))]
