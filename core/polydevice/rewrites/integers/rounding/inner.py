"""round_in_the_end: roundings within functions of 8-bit integers that results hardly see."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from polydevice.dtype import Array
from polydevice.network import Network
from polydevice.node import Evaluate, Port
from polydevice.ops.activation import Clamp
from polydevice.ops.quantize_linear import DequantizeLinear, QuantizeLinear
from polydevice.rewrites.integers.quantised import quantised, quantiser
from polydevice.rewrites.integers.rounding.of_bytes import (
    OfBytes,
    functions_of_bytes,
    table_of,
)
from polydevice.rewrites.pattern import Replacements, Users

_STEP = 1
"""How far from the model's integers those without roundings on the way may be."""


Exact = Callable[[OfBytes], bool]
"""Which functions are to be what the model makes of them."""


def round_in_the_end(network: Network, exact: Exact) -> None:
    """Leave out roundings on the way from integers of 8 bits to others that are functions of them.

    Of a function of 256 numbers all results can be looked at: roundings are left out where all
    that is quantised in the end is at most one step away. Tools quantise every step of SiLU and
    HardSwish. In a YOLOX rounding sigmoids takes a third of the time, and in text detection 24
    HardSwish in five steps each a fourth.
    """
    evaluate, users = network.evaluate, network.consumers()
    if evaluate is None:
        return
    groups: dict[Port, dict[Port, OfBytes]] = {}
    for port, function in functions_of_bytes(network).items():
        groups.setdefault(function.source, {})[port] = function
    replacements = Replacements()
    for functions in groups.values():
        ends = [
            each for port, each in functions.items() if isinstance(port.node.op, QuantizeLinear)
        ]
        if not ends or any(map(exact, ends)):
            continue
        inner = _inner(functions, users)
        limits = _without(functions, inner, evaluate) if inner else None
        if limits is not None:
            _leave_out(functions, limits, users, replacements)
    replacements.apply(network)


Functions = Mapping[Port, OfBytes]
"""Ports that are functions of the same integers, in the order in which they are computed."""
Limits = dict[Port, "tuple[float, float] | None"]
"""What stays of roundings that are left out, if anything does."""


def _inner(functions: Functions, users: Users) -> list[Port]:
    """What is quantised on the way alone; nothing where something else reads what is not rounded.

    Nobody could tell then how far that is away.
    """
    inner: list[Port] = []
    for port, function in functions.items():
        readers = [reader for reader, _ in users.get(port, ())]
        if isinstance(port.node.op, QuantizeLinear):
            back = [reader.outputs[0] for reader in readers]
            if back and all(each in functions and _stays(each, functions, users) for each in back):
                inner.append(port)
        elif isinstance(port.node.op, DequantizeLinear) or not function.roundings:
            continue
        elif not _stays(port, functions, users):
            return []
    return inner


def _stays(port: Port, functions: Functions, users: Users) -> bool:
    """Whether functions of the same integers alone read a port."""
    readers = [reader for reader, _ in users.get(port, ())]
    return bool(readers) and all(
        len(reader.outputs) == 1 and reader.output in functions for reader in readers
    )


def _limits(port: Port, before: Array) -> tuple[float, float] | None:
    """What rounding a value keeps it within; None where these numbers are there anyway."""
    parameters = quantiser(port.node)
    assert parameters is not None
    scale, zero, kind = parameters
    ends = np.iinfo(kind.dtype)
    low, high = (float(np.float32((end - zero) * scale)) for end in (ends.min, ends.max))
    is_within = low - scale / 2 <= before.min() and before.max() <= high + scale / 2
    return None if is_within else (low, high)


def _without(functions: Functions, inner: list[Port], evaluate: Evaluate) -> Limits | None:
    """The limits that stay where others are rounded; None where what is left is not near.

    All but one are left out where one is too much. Tools leave limits out that are those of the
    integers, as of HardSwish.
    """
    for kept in (None, *reversed(inner)):
        out = [port for port in inner if port is not kept]
        limits = _near(functions, dict.fromkeys(out, True), evaluate) if out else None
        if limits is not None:
            return _needed(functions, limits, evaluate)
    return None


def _needed(functions: Functions, limits: Limits, evaluate: Evaluate) -> Limits:
    """The limits without those that show nowhere, as where others follow."""
    for port in [port for port, found in limits.items() if found is not None]:
        needed = {each: found is not None and each is not port for each, found in limits.items()}
        limits = _near(functions, needed, evaluate) or limits
    return limits


def _near(functions: Functions, inner: Mapping[Port, bool], evaluate: Evaluate) -> Limits | None:
    """The limits that stay of roundings; None unless all that is rounded in the end is near.

    Args:
        functions: see `_inner`.
        inner: what is rounded on the way, and whether limits may stay of that.
        evaluate: computes operations.
    """
    tables: dict[Port, Array] = {}
    limits: Limits = {}
    for port, function in functions.items():
        node, table = port.node, function.table
        if function.roundings:
            before = node.inputs[0]
            if port in inner:
                found = _limits(port, tables[before]) if inner[port] else None
                tables[port] = tables[before] if found is None else np.clip(tables[before], *found)
                limits[port] = found
                continue
            if before in inner:
                tables[port] = tables[before]
                continue
            made = table_of(node, tables, function.source, evaluate)
            if made is None:
                return None
            is_end = isinstance(node.op, QuantizeLinear)
            if is_end and np.abs(made.astype(np.int64) - table).max() > _STEP:
                return None
            table = made
        tables[port] = table
    return limits


def _leave_out(
    functions: Functions, limits: Limits, users: Users, replacements: Replacements
) -> None:
    for port, found in limits.items():
        before = port.node.inputs[0]
        if found is not None:
            before = replacements.put_node(port.node, Clamp(*found), [before])
        for reader, _ in users[port]:
            replacements.put(reader.output, before)
    first: Port | None = None
    for port, function in functions.items():  # tools dequantise the integers for each reader
        value = None if function.roundings else quantised(port)
        if value is None:
            continue
        if first is None:
            first = port
        elif value == quantised(first):
            replacements.put(port, first)
