"""Programs compiled in child processes: one that takes long, or several side by side."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from pathlib import Path

from polydevice.errors import KernelBuildError
from polydevice_gpu.cl import child_process
from polydevice_gpu.cl.device import Device

_LIMIT_S = 600.0
_PROGRAMS_EACH, _MOST_PROCESSES = 2, 8
"""How many programs pay for a process, whose driver alone takes 0.4 s to start, and how many do.

ResNet-50 in f16 (13 programs, caches empty, an H200) loads in 2.54, 2.57 and 3.18 s with three of
them, in 2.43 to 2.48 with six and in 2.70 with eight; each program takes 0.1 to 0.4 s."""
_MEMORY_OF_PROCESS = 4 << 30
"""Of the device, for each process: what it takes itself is less than a tenth of that."""


def compile_apart(
    device: Device, name: str, source: str, options: str, goes_on: Callable[[], bool]
) -> bytes:
    """Compile in a child process, which may be ended at any time, unlike a compiler in this one.

    Returns:
        What the driver gives as the binary; nothing where the child was ended, could not be
        started, or refused the source.

    Raises:
        KernelBuildError: the child died of it, as this process would.
    """
    with tempfile.TemporaryDirectory(prefix="polydevice-") as folder:
        written, binary = Path(folder, "source.cl"), Path(folder, "binary")
        written.write_text(source, "utf-8")
        argument = {"jobs": [(name, str(written), options, str(binary))]}
        outcome = device.run_in_child("programs.building", argument, _LIMIT_S, goes_on)
        if outcome.status == "crashed" or (outcome.status == "hung" and goes_on()):
            raise KernelBuildError(
                f"the compiler of {device.name} {outcome.status} on program {name!r} in a child "
                f"process ({outcome.detail}); it is left out"
            )
        return binary.read_bytes() if {"built": name} in outcome.messages else b""


_ASIDE: ContextVar[Callable[[], bool] | None] = ContextVar("aside", default=None)


@contextlib.contextmanager
def compiling_aside(goes_on: Callable[[], bool]) -> Iterator[None]:
    """Let a child compile in the block, where a driver lets nobody else in while it does so itself.

    Inferences wait for NVIDIA's, up to half a second (H200).

    Args:
        goes_on: asked ten times a second; once it says no, the child is ended.
    """
    token = _ASIDE.set(goes_on)
    try:
        yield
    finally:
        _ASIDE.reset(token)


def goes_on_aside() -> Callable[[], bool] | None:
    """Return what to ask whether to go on compiling; None where somebody waits for it."""
    return _ASIDE.get()


def compile_side_by_side(
    device: Device, sources: Mapping[bytes, tuple[str, str]], processes: int
) -> dict[bytes, bytes]:
    """Compile programs where a driver works on little more than one of a process at a time.

    Args:
        device: which they are for.
        sources: key → text and build options.
        processes: how many to start at most; one where nobody waits.

    Returns:
        key → binary of those that compiled; of others whoever compiles them hears why not.
    """
    room, goes_on = device.facts.global_memory_bytes // _MEMORY_OF_PROCESS, goes_on_aside()
    count = min(len(sources) // _PROGRAMS_EACH, processes, _MOST_PROCESSES, room)
    if goes_on is not None:
        count = min(len(sources), room, 1)
    if count < (2 if goes_on is None else 1):
        return {}
    with tempfile.TemporaryDirectory(prefix="polydevice-") as folder:
        jobs = []
        # Long ones first, each to the next process: they take longest.
        for key, (text, options) in sorted(sources.items(), key=lambda each: -len(each[1][0])):
            name = key.hex()
            written, binary = Path(folder, f"{name}.cl"), Path(folder, f"{name}.binary")
            written.write_text(text, "utf-8")
            jobs.append((name, str(written), options, str(binary)))

        def build(first: int) -> child_process.Outcome:
            argument = {"jobs": jobs[first::count]}
            asked = goes_on or (lambda: True)
            return device.run_in_child("programs.building", argument, _LIMIT_S, asked)

        with ThreadPoolExecutor(count, "polydevice-build") as pool:
            outcomes = list(pool.map(build, range(count)))
        built = {
            each["built"] for outcome in outcomes for each in outcome.messages if "built" in each
        }
        return {
            bytes.fromhex(name): Path(binary).read_bytes()
            for name, _, _, binary in jobs
            if name in built
        }
