"""Bytes: results that are looked up, two at a time or 64 where there are many; and DynamicRange."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array
from polydevice.rewrites.integers.dynamic_range import DynamicRange
from polydevice_cpu.algorithms.by_machine import byte_table
from polydevice_cpu.algorithms.by_machine.code import Code, Told, has_avx512, has_vectors
from polydevice_cpu.algorithms.by_machine.rows import ranges
from polydevice_cpu.lower import lowers
from polydevice_cpu.onednn import openmp
from polydevice_cpu.onednn.descriptor import DATA_TYPES, Descriptor
from polydevice_cpu.ops.dynamic_range import rounded_to_range, write_range
from polydevice_cpu.passes.integers.byte_functions import ByteFunction
from polydevice_cpu.passes.integers.ranges import RoundedToRange
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.step import MACHINE_CODE, ArrayStep, ByMachine, Compute
from polydevice_cpu.plan.value import Value

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder

_MANY = 1 << 16
"""Bytes from which on a table of all pairs, 128 kB of a core's cache, is worth its reading."""


@lowers(ByteFunction)
def lower_byte_function(builder: PlanBuilder, node: Node) -> bool:
    """Look at the integers in whatever order they lie, if there are no gaps between them."""
    port, given = node.inputs
    table = given.desc.constant
    value = builder.value(port)
    if table is None or not value.in_reach:
        return False
    if value.strides is None or not value.has_no_gaps:
        value = builder.dense(value)
    assert value.strides is not None
    layout = Descriptor.strided(value.shape, value.strides, DATA_TYPES[table.dtype])
    result = builder.new(layout)
    source, target = (each.view((each.elements,), (1,)) for each in (value, result))
    implementation = "numpy"
    if byte_table.is_there():
        start = partial(_by_machine, np.ascontiguousarray(table), openmp.thread_count())
        implementation = MACHINE_CODE
    elif value.elements < _MANY:
        start = partial(_one_by_one, table)
    else:
        start = partial(_in_pairs, builder.derived(table, "pairs", _pairs))
    step = ArrayStep(node.name, node.type, start, [source], [target], implementation, writes=True)
    builder.emit(step)
    builder.set(node.output, result)
    return True


def _pairs(table: Array) -> Array:
    """What two neighbours become, by both as a number of 16 bits."""
    single = table.view(np.uint8).astype(np.uint16)
    result: Array = (single[np.newaxis, :] | single[:, np.newaxis] << 8).reshape(-1)
    return result


def _by_machine(table: Array, threads: int, _: Context) -> Compute:
    def compute(x: Array, result: Array) -> tuple[()]:
        byte_table.look_up(x, table, result)
        return ()

    def prepare(values: Sequence[Value]) -> Code | None:
        return byte_table.code(table, values[0].elements, threads)

    return ByMachine(compute, prepare, may_refuse=False)


def _one_by_one(table: Array, _: Context) -> Compute:
    def compute(x: Array, result: Array) -> tuple[()]:
        np.take(table, x.view(np.uint8), out=result, mode="clip")  # another mode copies once more
        return ()

    return compute


def _in_pairs(pairs: Array, _: Context) -> Compute:
    def compute(x: Array, result: Array) -> tuple[()]:
        even = x.size & -2
        numbers, wanted = (each[:even].view(np.uint16) for each in (x, result))
        np.take(pairs, numbers, out=wanted, mode="clip")
        if even < x.size:
            result[-1:].view(np.uint8)[:] = pairs[x[-1:].view(np.uint8)].astype(np.uint8)
        return ()

    return compute


@lowers(DynamicRange)
def lower_dynamic_range(builder: PlanBuilder, node: Node) -> bool:
    """Look for both ends by machine code: a few numbers take NumPy 2 to 3 µs, most of it Python's.

    A step of an RWKV with 25 of them takes 144 instead of 261 µs.
    """
    value = builder.value(node.inputs[0])
    if value.strides is None or not value.has_no_gaps or not has_avx512():
        return False
    value = builder.wide(value)
    source = value.view((value.elements,), (1,))
    results = [builder.new_dense((), port.element_type.dtype) for port in node.outputs]
    op = node.operation(DynamicRange)

    def compute(x: Array, scale: Array, zero: Array) -> tuple[()]:
        write_range(op, x, scale, zero)
        return ()

    def prepare(values: Sequence[Value]) -> Told:
        return ranges.prepared(values[0].elements)

    computed = ByMachine(compute, prepare, may_refuse=False)
    builder.emit(
        ArrayStep(
            *(node.name, node.type, lambda _: computed, [source], results, MACHINE_CODE),
            writes=True,
        )
    )
    for port, result in zip(node.outputs, results, strict=True):
        builder.set(port, result)
    return True


@lowers(RoundedToRange)
def lower_rounded_to_range(builder: PlanBuilder, node: Node) -> bool:
    """Round by machine code, in whatever order elements lie."""
    if not has_vectors():
        return False
    value = builder.wide(builder.value(node.inputs[0]))
    if value.strides is None or not value.has_no_gaps:
        value = builder.dense(value)
    assert value.strides is not None
    result = builder.new(Descriptor.strided(value.shape, value.strides))
    source, target = (each.view((each.elements,), (1,)) for each in (value, result))
    op = node.operation(RoundedToRange)

    def compute(x: Array, result: Array) -> tuple[()]:
        result[...] = rounded_to_range(op, x)
        return ()

    def prepare(values: Sequence[Value]) -> Told | None:
        return ranges.rounded(values[0].elements)

    computed = ByMachine(compute, prepare, may_refuse=False)
    builder.emit(
        ArrayStep(
            *(node.name, node.type, lambda _: computed, [source], [target], MACHINE_CODE),
            writes=True,
        )
    )
    builder.set(node.output, result)
    return True
