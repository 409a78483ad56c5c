"""Run driver code in a child process with a time limit, and keep what it said before it died.

A driver that crashes, aborts or hangs takes a process with it. So drivers are tried, and probe
kernels are compiled, in a child that runs one module of this package and reports JSON lines.
The child imports the standard library and this package's stdlib-only modules, nothing else
(30 ms to start, where importing pyopencl would cost 300 ms).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

_STDERR_KEPT_BYTES = 2000
_RAISED = "raised in the child"
_ASKED_EVERY_S = 0.1
_STARVED_FACTOR = 20
"""On a busy machine a process may take this many times its limit."""
_PACKAGE = Path(__file__).resolve().parent

# Packages are entered as empty modules with a path, so that no __init__ runs in the child.
_BOOT = """
import importlib, sys, types
for name, path in {packages!r}:
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
importlib.import_module("polydevice_gpu.cl.child_process").serve({module!r})
"""


@dataclass(frozen=True)
class Outcome:
    """How a child process ended.

    `status`: ``ok``; ``crashed`` (killed by a signal or a fatal exit); ``hung`` (killed by us at
    the time limit); ``failed`` (could not be started); ``raised`` (a Python exception: a defect of
    ours, not of the driver; it is logged). `messages` are the JSON values it reported before that;
    `detail` says what happened; `stderr` is the end of what the driver printed.
    """

    status: Literal["ok", "crashed", "hung", "failed", "raised"]
    messages: tuple[Any, ...]
    detail: str
    stderr: str


def run(
    module: str,
    argument: Any,
    *,
    environment: Mapping[str, str | None] | None = None,
    timeout_s: float,
    goes_on: Callable[[], bool] | None = None,
) -> Outcome:
    """Run ``main(argument, report)`` of `module` (below this package) in a child process.

    `environment` overrides variables; None removes one. The time limit does not count waiting for
    a free core (Linux). Once `goes_on`, asked ten times a second, says no, the child is killed and
    counts as hung. Never raises for what the child does.
    """
    if not sys.executable:
        return Outcome("failed", (), "this program embeds Python without an interpreter file", "")
    packages = [
        ("polydevice_gpu", str(_PACKAGE.parent)),
        ("polydevice_gpu.cl", str(_PACKAGE)),
        ("polydevice_gpu.cl.discovery", str(_PACKAGE / "discovery")),
    ]
    code = _BOOT.format(packages=packages, module=f"polydevice_gpu.cl.{module}")
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", code, json.dumps(argument)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=_environment(environment or {}),
                start_new_session=True,
            )
        except OSError as error:
            return Outcome("failed", (), f"cannot start {sys.executable}: {error}", "")
        output, hung = _collect(process, timeout_s, goes_on)
        end = errors.seek(0, os.SEEK_END)
        errors.seek(max(0, end - _STDERR_KEPT_BYTES))
        stderr = errors.read(_STDERR_KEPT_BYTES).decode("utf-8", "replace").strip()
    messages = tuple(_parse(output))
    if messages and list(messages[-1]) == [_RAISED]:
        raised = messages[-1][_RAISED]
        log_defect(f"asking OpenCL drivers ({module})", raised)
        return Outcome("raised", messages[:-1], raised.splitlines()[-1], stderr)
    if hung:
        return Outcome("hung", messages, f"no answer within {timeout_s:g} s", stderr)
    if process.returncode != 0:
        return Outcome("crashed", messages, _describe_exit(process.returncode), stderr)
    return Outcome("ok", messages, "", stderr)


def serve(module: str) -> None:
    """Be the child: run `module`'s ``main`` and report its messages on the original stdout."""
    import importlib

    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource  # POSIX only

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a probed crash leaves no core file
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # drivers print to stdout; that must not mix with the report

    def report(message: Any) -> None:
        channel.write(json.dumps(message) + "\n")
        channel.flush()

    try:
        main: Callable[[Any, Callable[[Any], None]], None] = importlib.import_module(module).main
        main(json.loads(sys.argv[1]), report)
    except Exception as error:  # noqa: BLE001 - told to the parent
        report({_RAISED: describe(error)})
    channel.close()
    # Drivers' exit handlers crash and hang too, after everything has been told: skip them.
    os._exit(0)


def describe(error: Exception) -> str:
    """Return the traceback of an exception, its own line last, for the parent to log."""
    import traceback

    lines = traceback.format_exception(type(error), error, error.__traceback__)
    return "".join(lines)[-_STDERR_KEPT_BYTES:].strip()


def log_defect(doing: str, raised: str) -> None:
    """Log what `describe` told: an error that only polydevice can be blamed for."""
    import logging  # here: it would double the time that a child takes to start

    logging.getLogger("polydevice.gpu").error(
        "a defect of polydevice, not of a driver, while %s; please report it:\n%s", doing, raised
    )


def _environment(overrides: Mapping[str, str | None]) -> dict[str, str]:
    while True:
        with contextlib.suppress(
            KeyError, RuntimeError
        ):  # a thread sets variables for a loader meanwhile
            environment = dict(os.environ)
            break
    for name, value in overrides.items():
        if value is None:
            environment.pop(name, None)
        else:
            environment[name] = value
    return environment


def _collect(
    process: subprocess.Popen[bytes], timeout_s: float, goes_on: Callable[[], bool] | None = None
) -> tuple[bytes, bool]:
    """Return the output and whether the time limit ended the process.

    Time in which the process would run but no core is free does not count, within reason: when
    32 programs start at the same time on 2 cores, their drivers are slow without being at fault.
    """
    start, rest = time.monotonic(), timeout_s
    while rest > 0 and (goes_on is None or goes_on()):
        try:
            slice_s = rest if goes_on is None else min(rest, _ASKED_EVERY_S)
            output, _ = process.communicate(timeout=slice_s)
        except subprocess.TimeoutExpired:
            elapsed = time.monotonic() - start
            starved = min(starved_s(process.pid), (_STARVED_FACTOR - 1) * timeout_s)
            rest = timeout_s + starved - elapsed
        else:
            return output, False
    with contextlib.suppress(OSError):
        if os.name == "posix":
            os.killpg(process.pid, signal.SIGKILL)  # with whatever the driver started
        else:
            process.kill()
    try:
        # A process stuck in the kernel cannot be killed; do not wait for it.
        output, _ = process.communicate(timeout=2)
    except subprocess.TimeoutExpired as expired:
        output = expired.output or b""
    return output, True


def starved_s(process: int) -> float:
    """Return how many seconds a process waited for a free core; 0 where that is not known."""
    waits = [0]
    for path in Path(f"/proc/{process}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # threads come and go
            waits.append(int(path.read_text().split()[1]))  # time run, time waited; nanoseconds
    return max(waits) / 1e9


def _parse(output: bytes) -> list[Any]:
    messages = []
    for line in output.splitlines():
        with contextlib.suppress(ValueError):  # the last line may be cut off by a crash
            messages.append(json.loads(line))
    return messages


def _describe_exit(code: int) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"killed by {signal.Signals(-code).name}"
    return f"exit status {code:#x}" if code > 255 else f"exit status {code}"
