"""Operations that `polydevice.operation` makes of functions: they compute themselves."""

from __future__ import annotations

from polydevice.dtype import Array
from polydevice.ops.python_operation import PythonOperation
from polydevice_cpu.implement import implements


@implements(PythonOperation)
def python_operation(op: PythonOperation, *inputs: Array) -> tuple[Array, ...]:
    """Call the function."""
    return tuple(op.compute(inputs))
