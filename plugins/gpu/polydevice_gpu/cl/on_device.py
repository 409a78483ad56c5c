"""run: something on one device in a child process, which may die or be ended."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from polydevice_gpu.cl import child_process, library
from polydevice_gpu.cl.discovery.facts import DeviceFacts, Icd
from polydevice_gpu.cl.discovery.icd import loader_environment


def run(
    module: str,
    facts: DeviceFacts,
    twin: int,
    drivers: tuple[Icd, ...] | None,
    argument: Mapping[str, Any],
    *,
    timeout_s: float,
    goes_on: Callable[[], bool] | None = None,
) -> child_process.Outcome:
    """Run ``main`` of a module in a child that offers the same drivers; see `child_process.run`.

    Args:
        module: below this package.
        facts: of the device.
        twin: which of those with the same facts.
        drivers: that the child may load; None for those of the system.
        argument: what it is told beside ``opencl``, ``identity`` and ``twin``.
        timeout_s: seconds after which it is killed.
        goes_on: asked ten times a second; the child is killed when it says no.
    """
    opencl = library.find_library()[0]
    about = {"opencl": opencl, "identity": facts.identity, "twin": twin, **argument}
    with contextlib.ExitStack() as stack:
        variables = stack.enter_context(loader_environment(drivers)) if drivers is not None else {}
        return child_process.run(
            module, about, environment=variables, timeout_s=timeout_s, goes_on=goes_on
        )
