"""Recurrent layers by machine code: a product for all steps' inputs, and a loop over the steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array
from polydevice.ops import recurrent as ops
from polydevice_cpu.algorithms.by_machine.code import Code, has_vectors
from polydevice_cpu.algorithms.by_machine.functions import Activation
from polydevice_cpu.algorithms.by_machine.recurrent.loop import MOST_ITEMS, Form
from polydevice_cpu.algorithms.by_machine.recurrent.steps import (
    Layer,
    entering_weights,
    recurrent_weights,
    steps,
    whole_rows,
)
from polydevice_cpu.lowering.recurrent.views import (
    hidden_view,
    last_view,
    state_view,
    time_first,
)
from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.constants import Arg
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.engine import address_of
from polydevice_cpu.onednn.primitives import matmul
from polydevice_cpu.ops.recurrent import in_order
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.step import MACHINE_CODE, ArrayStep, ByMachine, Compute, PrimitiveStep
from polydevice_cpu.plan.value import Value

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder

MOST_BYTES = 1 << 20
"""Recurrent weights that every few items read anew; larger ones leave the core's cache."""


FEW_ITEMS_BYTES = 1 << 19
"""The same of layers that oneDNN computes, too: 8 items of 256 states take 1.1 to 1.3 times as long
as its product of all items."""

MOST_PRODUCTS = 1 << 21
"""So many numbers are multiplied in a layer that several threads do not share: some 40 us."""


def emit_loop(builder: PlanBuilder, node: Node, weights: list[Array], *, is_plain: bool) -> bool:
    """Emit what computes a layer; False where there is no such code, or oneDNN takes less time.

    Args:
        builder: of the plan.
        node: the layer.
        weights: its constants, of f32.
        is_plain: whether oneDNN may compute it.
    """
    op = node.operation(ops.Recurrent)
    w, r, *vectors = weights
    sequence = isinstance(op, ops.SequenceOf)
    if not sequence:
        w, r, *vectors = (each[np.newaxis] for each in weights)
    x = time_first(builder, builder.value(node.inputs[0]), sequence)
    time, batch, size = x.shape
    length_bytes = _length_bytes(node, op, time)
    if not has_vectors() or length_bytes is None or not time or not batch:
        return False
    if batch > MOST_ITEMS and r[0].nbytes > (FEW_ITEMS_BYTES if is_plain else MOST_BYTES):
        return False
    if is_plain and builder.settings.threads > 1 and time * batch * r.size > MOST_PRODUCTS:
        return False
    layer = layer_of(op, length_bytes, peepholes=len(vectors) > 1)
    source = Descriptor.dense((time * batch, size))
    target = Descriptor.dense((time * batch, layer.columns))
    made = matmul(source, Descriptor.any((size, layer.columns)), None, target, Attributes())
    if made is None:
        return False
    name = f"loop {op}"
    entering = builder.new(target)
    arguments: dict[int, Value] = {
        Arg.SRC: builder.in_layout(x, Descriptor.dense(x.shape)).seen_as(source),
        Arg.WEIGHTS: builder.packed_from(w, name, partial(_entering, op, layer), made.weights),
        Arg.DST: entering,
    }
    builder.emit(PrimitiveStep("", "MatMul", made, arguments, (Arg.DST,)))
    values = _values(builder, node, layer, r, vectors)
    values["entering"] = entering
    # Where layers compute in bfloat16, what is read may be that, and is brought into f32.
    count, hidden, number = len(layer.backwards), layer.hidden, np.dtype(np.float32)
    values["result"] = builder.new_dense((time, batch, count * hidden), number)
    values["room"] = builder.new_dense((layer.room,), number)
    lasts = []
    for state, port in zip(("state", "cell"), node.inputs[1 : 1 + op.states], strict=False):
        begin = state_view(builder, builder.value(port), sequence)
        values[state] = builder.in_layout(begin, Descriptor.dense((1, count, batch, hidden)))
        lasts.append(builder.new_dense((1, count, batch, hidden), number))
    values |= zip(("last", "last_cell"), lasts, strict=False)
    split = layer.form.names.index("result")
    told = [values[each] for each in layer.form.names]
    start = partial(_start, layer)
    builder.emit(
        ArrayStep(
            *(node.name, node.type, start, told[:split], told[split:], MACHINE_CODE), writes=True
        )
    )
    views = [last_view(last, sequence) for last in lasts]
    if sequence:
        views.insert(0, hidden_view(values["result"], count))
    for port, view in zip(node.outputs, views, strict=True):
        builder.set(port, view)
    return True


def _length_bytes(node: Node, op: ops.Recurrent, time: int) -> int | None:
    """Bytes of an item's length, 0 where all last for all steps; None without code."""
    if not isinstance(op, ops.SequenceOf):
        return 0
    lengths = node.inputs[1 + op.states]
    known = lengths.desc.constant
    if known is not None and all(each == time for each in known.reshape(-1).tolist()):
        return 0
    dtype = lengths.element_type.dtype
    return dtype.itemsize if dtype in (np.dtype(np.int32), np.dtype(np.int64)) else None


def _values(
    builder: PlanBuilder, node: Node, layer: Layer, r: Array, vectors: list[Array]
) -> dict[str, Value]:
    """What the loop reads that does not change."""
    op, count = node.operation(ops.Recurrent), len(layer.backwards)
    packed = Descriptor.dense((count, layer.weights))
    given = [*vectors] or [np.zeros((count, op.bias_gates * op.hidden_size), np.float32)]

    def constant(name: str, array: Array, make: Callable[[Array], Array]) -> Value:
        return builder.constant(builder.derived(array, f"loop {op} {name}", make))

    values = {
        "weights": builder.packed_from(r, f"loop {op}", partial(_recurrent, op, layer), packed),
        "bias": constant("bias", given[0], partial(_bias, op, layer)),
    }
    if layer.form.late_reset:
        values["behind"] = constant("behind", given[0], partial(_bias_behind, op, layer))
    if layer.form.peepholes:
        values["peepholes"] = constant("peepholes", given[1], partial(whole_rows, layer))
    if layer.form.length_bytes:
        values["lengths"] = builder.array_value(node.inputs[1 + op.states])
    return values


def _start(layer: Layer, _: Context) -> Compute:
    """Start what computes a layer with what `Form.names` has."""
    result = layer.form.names.index("result")

    def code(shape: tuple[int, ...]) -> Code | None:
        told = steps(layer, *shape[:2])
        return None if told is None else Code.of(told)

    def prepare(values: Sequence[Value]) -> Code | None:
        return code(values[result].shape)

    def compute(*arrays: Array) -> tuple[()]:
        made = code(arrays[result].shape)
        assert made is not None
        made.bound([address_of(array) for array in arrays])()
        return ()

    return ByMachine(compute, prepare)


def layer_of(op: ops.Recurrent, length_bytes: int, *, peepholes: bool) -> Layer:
    """Return a layer as machine code computes it."""
    direction = op.direction if isinstance(op, ops.SequenceOf) else ops.Direction.FORWARD
    backwards = [d == 1 or direction is ops.Direction.REVERSE for d in range(direction.count)]
    kind = "rnn"
    if isinstance(op, ops.Lstm):
        kind = "lstm"
    elif isinstance(op, ops.Gru):
        kind = "gru"
    form = Form(
        kind,
        tuple(Activation(*op.activation(index)) for index in range(len(op.functions))),
        op.clip,
        input_forget=isinstance(op, ops.Lstm) and op.input_forget,
        peepholes=peepholes,
        late_reset=isinstance(op, ops.Gru) and op.linear_before_reset,
        items=1,
        length_bytes=length_bytes,
    )
    return Layer(form, tuple(backwards), op.hidden_size)


def _ordered(op: ops.Recurrent, array: Array) -> Array:
    """[D, gates * H, ...] with an LSTM's gates in the order f, i, c, o."""
    if not isinstance(op, ops.Lstm) or op.weights_format == "fico":
        return array
    return np.stack([in_order(op, each) for each in array])


def _entering(op: ops.Recurrent, layer: Layer, w: Array) -> Array:
    return entering_weights(layer, _ordered(op, w))


def _recurrent(op: ops.Recurrent, layer: Layer, r: Array) -> Array:
    return recurrent_weights(layer, _ordered(op, r))


def _bias(op: ops.Recurrent, layer: Layer, bias: Array) -> Array:
    """What is added to what enters the gates."""
    return entering_weights(layer, _ordered(op, bias[:, : op.gates * op.hidden_size]))


def _bias_behind(op: ops.Recurrent, layer: Layer, bias: Array) -> Array:
    """What a GRU adds behind its recurrent product."""
    return whole_rows(layer, bias[:, op.gates * op.hidden_size :])
