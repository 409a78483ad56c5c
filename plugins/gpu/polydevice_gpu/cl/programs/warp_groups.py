"""Instructions of warp groups (Hopper's wgmma), which NVIDIA's OpenCL compiler does not know.

It aims at sm_90 and refuses what only sm_90a has. So the source says such an instruction as a
comment in inline assembly, ``asm volatile("//@warp_group wgmma…" …)``: the compiler fills in the
registers and keeps the comment. Its result is PTX text, from which the marks are taken, and which
becomes a program like any other binary (tried with driver 580.159).
"""

from __future__ import annotations

import re

MARK = "//@warp_group "
DECLARED_LOCAL_BYTES = 224 << 10
"""What a kernel may declare on such a processor, of 227 KiB; OpenCL says 48, and takes no more as
an argument."""
LEAST_VERSION = b".version 8.4"
"""Of PTX, the first one that multiplies bytes without a sign with those that have one."""

_VERSION = re.compile(rb"^\.version\s+\d+\.\d+", re.MULTILINE)
_TARGET = re.compile(rb"^(\.target\s+sm_90)\b(?!a)", re.MULTILINE)


def is_marked(source: str) -> bool:
    """Whether a source has instructions of warp groups."""
    return MARK in source


def unmarked(ptx: bytes) -> bytes:
    """Return the compiler's PTX with the marked instructions in force, aimed at sm_90a."""
    text = _TARGET.sub(rb"\1a", ptx.rstrip(b"\0").replace(MARK.encode(), b""))
    return _VERSION.sub(lambda found: max(found[0], LEAST_VERSION, key=_numbers), text)


def _numbers(version: bytes) -> list[int]:
    """The numbers of a line ``.version 8.4``."""
    return [int(number) for number in version.split()[1].split(b".")]
