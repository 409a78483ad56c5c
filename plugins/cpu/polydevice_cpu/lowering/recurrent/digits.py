"""LSTMs with weights of 8 bits by machine code that multiplies digits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array
from polydevice_cpu.algorithms.by_machine.code import Code
from polydevice_cpu.algorithms.by_machine.recurrent import digits
from polydevice_cpu.algorithms.by_machine.recurrent.steps import Layer
from polydevice_cpu.implement import run
from polydevice_cpu.lowering.recurrent.loop import layer_of
from polydevice_cpu.lowering.recurrent.views import (
    hidden_view,
    last_view,
    state_view,
    time_first,
)
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.passes.integers.compressed_recurrent import CompressedLSTM
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.step import ArrayStep, ByMachine, Compute
from polydevice_cpu.plan.value import Value

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder

MOST_ITEMS = 16
"""Of a batch; items times steps that oneDNN's W meets at once, too: more take longer for each."""

MOST_BYTES, MOST_READ = 1 << 20, 8 << 20
"""Of recurrent weights that every two items read anew, and that all items read in a step: of more
items than two, larger ones leave the core's cache. In us, of 4 items and 16 steps, 320 states take
481, 512 1,222, and 1,024 18,113; with oneDNN's products 1,001, 1,941 and 14,771."""

CODE = "polydevice:avx512_vnni, digits of 24 bits"


def emit_digits(builder: PlanBuilder, node: Node, weights: tuple[Array, ...]) -> bool:
    """Emit what computes a layer of whole sequences; False where there is no such code.

    Args:
        builder: of the plan.
        node: the layer.
        weights: W, R, the bias, and the scales of both.
    """
    if not digits.is_there():
        return False
    op = node.operation(CompressedLSTM)
    x = time_first(builder, builder.value(node.inputs[0]), sequence=True)
    time, batch, terms = x.shape
    each_bytes = weights[1][0].nbytes
    if not time or not 0 < batch <= MOST_ITEMS:
        return False
    if batch * each_bytes > max(MOST_READ, digits.MOST_ITEMS * each_bytes):
        return False
    if batch > digits.MOST_ITEMS and each_bytes > MOST_BYTES:
        return False
    layer = layer_of(op, 0, peepholes=False)
    count, hidden, number = len(layer.backwards), layer.hidden, np.dtype(np.float32)
    shape = (1, count, batch, hidden)
    values = _constants(builder, layer, weights)
    values["x"] = builder.in_layout(x, Descriptor.dense(x.shape))
    for name, port in zip(("state", "cell"), node.inputs[1:3], strict=True):
        begin = state_view(builder, builder.value(port), sequence=True)
        values[name] = builder.in_layout(begin, Descriptor.dense(shape))
    values["result"] = builder.new_dense((time, batch, count * hidden), number)
    values["entering"] = builder.new_dense((time, batch, layer.columns), number)
    values["room"] = builder.new_dense((digits.room(layer, terms),), number)
    lasts = [builder.new_dense(shape, number) for _ in range(2)]
    values |= zip(("last", "last_cell"), lasts, strict=True)
    split = digits.NAMES.index("result")
    told = [values[name] for name in digits.NAMES]
    start = partial(_start, op, layer, weights)
    builder.emit(
        ArrayStep(node.name, node.type, start, told[:split], told[split:], CODE, writes=True)
    )
    views = [hidden_view(values["result"], count), *(last_view(e, sequence=True) for e in lasts)]
    for port, view in zip(node.outputs, views, strict=True):
        builder.set(port, view)
    return True


def _constants(builder: PlanBuilder, layer: Layer, weights: tuple[Array, ...]) -> dict[str, Value]:
    w, r, bias, *scales = weights

    def constant(array: Array, name: str, make: Callable[[Layer, Array], Array]) -> Value:
        return builder.constant(builder.derived(array, f"digits {name}", partial(make, layer)))

    values = {"bias": constant(bias, "bias", digits.of_gates)}
    for name, each, scale in (("w", w, scales[0]), ("r", r, scales[1])):
        values[name] = constant(each, name, digits.weights)
        values[f"{name}_sums"] = constant(each, f"sums of {name}", digits.sums)
        values[f"{name}_scales"] = constant(scale, f"scales of {name}", digits.of_gates)
    return values


def _start(op: CompressedLSTM, layer: Layer, weights: tuple[Array, ...], _: Context) -> Compute:
    """Start what computes a layer; NumPy does in f32 where numbers are not finite, or huge."""
    split = digits.NAMES.index("result")

    def compute(x: Array, h: Array, c: Array, *rest: Array) -> tuple[()]:
        y, *lasts = rest[split - 3 : split]
        lengths = np.full(x.shape[1], len(x))
        inputs = [x.swapaxes(0, 1), h[0].swapaxes(0, 1), c[0].swapaxes(0, 1), lengths, *weights]
        hidden, *ends = run(op, inputs)
        y.reshape(*y.shape[:2], len(layer.backwards), -1)[...] = hidden.transpose(2, 0, 1, 3)
        for last, end in zip(lasts, ends, strict=True):
            last[0] = end.swapaxes(0, 1)
        return ()

    def prepare(values: Sequence[Value]) -> Code | None:
        told = digits.steps(layer, *values[0].shape)
        return None if told is None else Code.of(told)

    return ByMachine(compute, prepare)
