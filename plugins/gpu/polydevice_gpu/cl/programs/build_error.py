"""Errors of compilers, with the lines of the source that they mean."""

from __future__ import annotations

import re
from collections.abc import Sequence

from polydevice.errors import KernelBuildError
from polydevice_gpu.cl.status import exception_for, name_of

_LOG_LIMIT_CHARACTERS = 4000
_LINES_AROUND = 3
# NVIDIA "<kernel>:12:5: error", Intel "1:12:5: error", PoCL "error: <file>:12:5: use of"
_LINE = re.compile(r'#line (\d+) "(.*)"')
_POSITION = re.compile(r"([^\s:]*):?\b(\d+):\d+: ")
"""Groups: the file, which compilers leave out or call by a name of their own, and the line."""


def build_error(
    name: str, device: str, source: str, options: str, log: str, code: int
) -> Exception:
    """Show the program, the lines around each error, and the log."""
    if not log and code not in {-11, -42, -43, -45}:
        return exception_for(code, f"building program {name!r} on {device}")
    kernels = ", ".join(re.findall(r"__kernel\s+[\w\s()]*?void\s+(\w+)", source)) or "none"
    parts = [
        f"program {name!r} (kernels: {kernels}) does not compile on {device}: {name_of(code)}",
        f"build options: {options or 'none'}",
    ]
    errors = [line for line in log.splitlines() if "error" in line]
    positions = [found for line in errors if (found := _POSITION.search(line))]
    excerpt = _excerpt(source, [_line_of(source, found) for found in positions])
    if excerpt:
        parts += ["source:", excerpt]
    shortened = log[:_LOG_LIMIT_CHARACTERS] + (" …" if len(log) > _LOG_LIMIT_CHARACTERS else "")
    parts += ["compiler's log:", shortened or "(empty)"]
    # NVIDIA's compiler counts lines as they stand, whatever `#line` says of them.
    parts += [
        f"written at {place}"
        for found in positions[:1]
        if (place := _written_at(source, int(found.group(2))))
        and place.rpartition(":")[0] not in log
    ]
    return KernelBuildError("\n".join(parts))


def _written_at(source: str, line: int) -> str:
    """Return "file:line" of what a `#line` above says about a line; "" where none does."""
    above = source.splitlines()[:line]
    for number in range(len(above) - 1, -1, -1):
        said = _LINE.match(above[number])
        if said is not None:
            return f"{said[2]}:{int(said[1]) + line - number - 2}"
    return ""


def _line_of(source: str, position: re.Match[str]) -> int:
    """Return the line of the source that a compiler means, which may count as `#line` says."""
    line = int(position[2])
    for number, text in enumerate(source.splitlines(), 1):
        said = _LINE.match(text)
        if said is not None and said[2] == position[1] and int(said[1]) <= line:
            return number + 1 + line - int(said[1])
    return line


def _excerpt(source: str, failing: Sequence[int]) -> str:
    """Return numbered lines around the failing ones, which are marked with ``>``."""
    lines = source.splitlines()
    wanted = {
        number
        for line in failing[:3]
        for number in range(line - _LINES_AROUND, line + _LINES_AROUND + 1)
        if 1 <= number <= len(lines)
    }
    return "\n".join(f"{'>' if n in failing else ' '}{n:5}: {lines[n - 1]}" for n in sorted(wanted))
