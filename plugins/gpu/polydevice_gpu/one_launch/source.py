"""The kernel that calls functions: its source, and the words of its stages."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from enum import IntEnum
from importlib import resources

from polydevice.dataclass import dataclass
from polydevice_gpu.one_launch.function import Function

FIELDS = 6
"""Words of a stage before its arguments."""
MOST_WORDS = 64
"""Words of a stage at most: every lane of a warp holds two."""
_WARP = 32
_NAMED_BARRIERS = 15


class Meeting(IntEnum):
    """How the groups of a launch wait for each other."""

    NONE = 0  # there is one
    ATOMICS = 1  # of OpenCL 1.2, which promise no order; processors keep one
    PTX = 2


@dataclass(frozen=True)
class Shape:
    """How a function's groups share a work-group of the kernel.

    Attributes:
        slots: how many of them run side by side.
        together: how many neighbours stay in one warp.
        slot_bytes: local memory of each.
        barrier: what ``barrier(flags)`` is in the function; "" for the work-group's own.
        after: what stands behind each call.
    """

    slots: int
    together: int
    slot_bytes: int
    barrier: str
    after: str


def shape_of(
    function: Function, local_size: int, local_bytes: int, slot_bytes: int, *, ptx: bool
) -> Shape:
    """Return how a function runs in work-groups of a kernel.

    Args:
        function: what is called; `why_not_within` is empty for it.
        local_size: work-items of the kernel's groups.
        local_bytes: local memory of a group.
        slot_bytes: what one call takes of it.
        ptx: whether parts of a group have barriers of their own, and `slot_bytes` is exact.
    """
    items = function.items
    slots = local_size // items
    if 1 < items < local_size and (function.has_barriers or slot_bytes):
        slots = min(slots, _NAMED_BARRIERS)
    if slot_bytes:
        slots = max(1, min(slots, local_bytes // slot_bytes)) if ptx else 1
    together = _WARP // items if items < _WARP and _WARP % items == 0 else 1
    if slots % together:
        together = 1
    barrier = ""
    if items > 1 and items < local_size:
        barrier = 'asm volatile("bar.sync %0, {};" ::"r"({} + 1) : "memory")'
    own = barrier.format(items, "stage_slot") if function.has_barriers else ""
    after = ""
    if slot_bytes and items > 1:
        after = barrier.format(items, "slot") or "barrier(CLK_LOCAL_MEM_FENCE)"
    return Shape(slots, together, slot_bytes, own, after)


def source(
    functions: Sequence[Function],
    shapes: Sequence[Shape],
    local_size: int,
    ports: int,
    local_bytes: int,
    meeting: Meeting,
) -> str:
    """Return the source of a kernel.

    Args:
        functions: what it may call; a stage names one by its number.
        shapes: how each runs.
        local_size: work-items of its groups.
        ports: how many buffers may be others in each launch.
        local_bytes: most local memory that there is.
        meeting: how groups wait for each other, if there are several.
    """
    preludes = dict.fromkeys(text for each in functions for text in each.body.preludes)
    parts = list(preludes)
    cases = []
    for number, (function, shape) in enumerate(zip(functions, shapes, strict=True)):
        parts.append(function.definition(number, shape.barrier))
        reads, call = function.call(number, FIELDS)
        sizes = f"{function.items}, {shape.slots}, {shape.together}, {shape.slot_bytes}"
        cases.append(f"case {number}: {{ {reads} STAGE({sizes}, ({call}), {shape.after}) }}")
    # All that there is: Intel's CPU runtime counts less than a kernel has.
    memory = local_bytes if any(s.slot_bytes for s in shapes) else 16
    declared = "".join(f", __global uchar* port{n}" for n in range(ports))
    parts += [
        f"#define LOCAL_SIZE {local_size}",
        f"#define LOCAL_BYTES {memory}",
        f"#define PORTS {ports}",
        f"#define MEETING {int(meeting)}",
        f"#define PORT_PARAMETERS {declared}",
        "#define PORT_OF(w) "
        + "".join(f"(w) == {n} ? (ulong)port{n} : " for n in range(ports))
        + "0",
        "#define STAGES " + " ".join(cases),
        _text(),
    ]
    return "\n".join(parts)


@functools.cache
def _text() -> str:
    folder = resources.files("polydevice_gpu.one_launch")
    return folder.joinpath("one_launch.cl").read_text("utf-8")
