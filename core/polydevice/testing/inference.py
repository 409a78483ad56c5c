"""How `op_case.run_case` computes a case, and how it compares what comes out."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.ops.op import Op
from polydevice.tensor import TensorDesc

if TYPE_CHECKING:
    from polydevice.core import Core
    from polydevice.network import Network

Compute = Callable[[Op, Sequence[Array]], Sequence[Array]]
"""Computes an operation on arrays without a network (the CPU plugin's `implement.run`)."""
Inference = Callable[[Sequence[Array]], Sequence[Array]]
"""Returns the outputs for all inputs of a case; those that are constants are not looked at."""

TOLERANCES: Mapping[ElementType, tuple[float, float]] = {
    # (relative, absolute); sums of a few hundred terms in another order differ this much.
    ElementType.f64: (1e-6, 1e-9),  # runtimes compute f64 networks in f32 in places
    ElementType.f32: (1e-4, 1e-5),
    ElementType.f16: (5e-3, 5e-3),  # 11 bits; devices accumulate in f16 or f32
    ElementType.bf16: (2e-2, 2e-2),  # 8 bits
}
"""Tolerance of an output by its element type; other types must match exactly."""


@cache
def shared_core() -> Core:
    """Return the Core of all cases of this process: making one costs more than most inferences."""
    from polydevice.core import Core

    core = Core()
    atexit.register(core.close)
    return core


@contextmanager
def network_inference(network: Network, device: str) -> Iterator[Inference]:
    """Load a network, whose inputs are named ``input0``…, once; infer on one request."""
    with shared_core().load_network(network, device) as executable:
        request = executable.create_infer_request()

        def infer(inputs: Sequence[Array]) -> list[Array]:
            named = {f"input{i}": array for i, array in enumerate(inputs)}
            outputs = request.infer({name: named[name] for name in executable.inputs})
            return [np.array(outputs[name]) for name in network.outputs]

        yield infer


def placed(array: Array, shift: int) -> Array:
    """Copy an array to memory that begins `shift` elements past a multiple of 64 bytes."""
    if array.dtype.kind in "OUST":
        return np.array(array)
    memory = np.empty(array.nbytes + 64 + shift * array.itemsize, np.uint8)
    start = -memory.ctypes.data % 64 + shift * array.itemsize
    copy: Array = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def rolled(array: Array) -> Array:
    """Move an array's items on by one along its first axis that has several."""
    axis = next((axis for axis, size in enumerate(array.shape) if size > 1), None)
    return array if axis is None else np.roll(array, 1, axis)


def compare(
    what: str,
    output: Array,
    desc: TensorDesc,
    answer: Array,
    tolerance: tuple[float, float] | None = None,
) -> None:
    """Check element type and shape of an output, and its elements within (relative, absolute).

    Raises:
        AssertionError: naming `what` and the first element that differs.
    """
    assert output.dtype == desc.element_type.dtype, f"{what}: type {output.dtype}, inferred {desc}"
    assert output.shape == answer.shape, f"{what}: shape {output.shape}, expected {answer.shape}"
    relative, absolute = tolerance or TOLERANCES.get(desc.element_type, (0.0, 0.0))
    if output.dtype == object or (relative == 0.0 and absolute == 0.0):
        right = np.asarray(output == answer)
    else:
        wide = np.complex128 if output.dtype.kind == "c" else np.float64
        got, want = output.astype(wide), answer.astype(wide)
        right = np.isclose(got, want, relative, absolute, equal_nan=True)
    if not right.all():
        first = tuple(int(i) for i in np.argwhere(~right)[0])
        raise AssertionError(
            f"{what}: {int((~right).sum())} of {right.size} elements differ; first at "
            f"{list(first)}: {output[first]!r}, expected {answer[first]!r}"
        )
