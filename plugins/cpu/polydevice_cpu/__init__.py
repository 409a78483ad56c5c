"""The CPU device: oneDNN primitives for what is heavy, NumPy for the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from polydevice.hookspecs import hookimpl

if TYPE_CHECKING:
    from polydevice.dtype import Array
    from polydevice.ops.op import Op
    from polydevice.plugin import Plugin, Services


@hookimpl
def register_devices(register: Callable[[str, Callable[[str, Services], Plugin]], None]) -> None:
    """Offer the device family CPU."""
    from polydevice_cpu.plugin import CpuPlugin

    register("CPU", CpuPlugin)


@hookimpl
def evaluate(op: Op, inputs: Sequence[Array]) -> list[Array] | None:
    """Compute one operation with NumPy; None where it cannot be computed on these arrays."""
    from polydevice_cpu.implement import evaluate as evaluate_

    return evaluate_(op, inputs)
