"""ReadValue and Assign: variables that a request keeps from one inference to the next."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import InferenceError
from polydevice.ops.state import Assign, ReadValue
from polydevice_cpu.plan.array_steps.start import starts
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.step import Compute, Start


@starts(ReadValue)
def start_read_value(op: ReadValue) -> Start:
    """Return the variable's value, or before its first assignment the initial one."""

    def start(context: Context) -> Compute:
        def compute(*initial: Array) -> tuple[Array, ...]:
            known = context.variables.get(op.variable_id)
            if known is not None:
                return (known,)
            if initial:
                return (initial[0],)
            if op.variable_shape is None or op.variable_type is None:
                raise InferenceError(
                    f"variable {op.variable_id!r} has neither a value nor a known shape; set it "
                    "with query_state()"
                )
            low = [size if isinstance(size, int) else size.min for size in op.variable_shape]
            return (np.zeros(low, op.variable_type.dtype),)

        return compute

    return start


@starts(Assign)
def start_assign(op: Assign) -> Start:
    """Note the value for the next inference."""

    def start(context: Context) -> Compute:
        def compute(x: Array) -> tuple[Array, ...]:
            context.assigned[op.variable_id] = x.copy()
            return (x,)

        return compute

    return start
