"""Steps of known sizes whose weights wait until it is decided whether AMX tiles read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from polydevice.dtype import Array
from polydevice.symbolic_trace import current_trace
from polydevice_cpu.algorithms.by_machine.amx.instructions import has_tiles_of_bytes
from polydevice_cpu.onednn.constants import Arg
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.plan.step import CodeStep, PrimitiveStep, Step
from polydevice_cpu.plan.value import Kind, LaterValue, Storage, Value


def later(array: Array, descriptor: Descriptor, make: Callable[[], Value]) -> Value:
    """Return a packed constant; one that tiles may read otherwise is packed once that is decided.

    Args:
        array: what it is made of.
        descriptor: the layout that oneDNN wants.
        make: packs it.
    """
    if not may_wait(array) or current_trace() is not None:
        return make()
    storage = Storage(Kind.CONSTANT, descriptor.size_bytes, array=array)
    layout = descriptor.shape, descriptor.dtype, descriptor.strides
    made = LaterValue(storage, *layout, descriptor=descriptor)
    made.make = make
    return made


def may_wait(array: Array) -> bool:
    """Whether tiles may read a constant."""
    return array.dtype == np.int8 and array.ndim > 1 and has_tiles_of_bytes()


def in_tiles(step: Step) -> Step:
    """Return the step in tiles where these compute it; else itself, whose constants are packed.

    Args:
        step: of a plan of known sizes.
    """
    if not isinstance(step, PrimitiveStep):
        return step
    waiting = [at for at, value in step.arguments.items() if isinstance(value, LaterValue)]
    if not waiting:
        return step
    if waiting == [Arg.WEIGHTS]:
        # Networks without bytes need none of it, nor what it imports.
        from polydevice_cpu.plan.filling.by_machine.known_sizes import in_tiles_of

        made = in_tiles_of(step)
        if made is not None:
            return made
    for at in waiting:
        value = step.arguments[at]
        assert isinstance(value, LaterValue)
        step.arguments[at] = value.make()
    return step


def tiles_of(steps: Sequence[Step]) -> list[Array]:
    """Return the weights of all steps in tiles."""
    if not has_tiles_of_bytes():
        return []
    from polydevice_cpu.algorithms.by_machine.amx.layer import Kept  # 0.5 MB, for tiles alone

    kept = [step.code.kept for step in steps if isinstance(step, CodeStep)]
    return [each.matrices.weights.tiles for each in kept if isinstance(each, Kept)]
