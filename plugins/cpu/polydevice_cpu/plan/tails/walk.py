"""Walk: nodes run one by one on arrays, by a function that is written for them.

A node takes some 0.5 µs besides what NumPy computes; where a loop looked up what each node reads,
it took 1.2 to 2.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import numpy as np

from polydevice.bounds import current_bounds
from polydevice.dtype import Array
from polydevice.node import Node, Port
from polydevice.ops.op import Op
from polydevice_cpu.plan.array_steps.checking import Check
from polydevice_cpu.plan.array_steps.growth import COUNTED_BYTES, counted
from polydevice_cpu.plan.array_steps.start import starter
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.binding.workspace import Workspace
from polydevice_cpu.plan.step import Compute, Start, outputs_of

KEPT = 64
"""Texts of which the code is kept: to compile one takes 50 µs for each node."""

Begin = Callable[[Context, Workspace], Compute]
"""Makes the function of a part for one request, with memory that its parts share."""


class Part(NamedTuple):
    """Nodes that run in one call.

    Attributes:
        begin: makes the function.
        reads: what it reads: ports, or names of other arrays that are given.
        gives: whose arrays it returns.
    """

    begin: Begin
    reads: Sequence[Hashable]
    gives: Sequence[Port]


def walk(
    steps: Sequence[Node | Part],
    given: Sequence[Hashable],
    wanted: Sequence[Port],
    turned: Mapping[Port, Hashable] | None = None,
) -> Start:
    """Return what runs nodes and parts one by one; values are dropped after their last reader.

    Args:
        steps: they, in order.
        given: ports that they read of others, or names, whose arrays are given.
        wanted: whose arrays are returned.
        turned: what is given, and the name of the same with its channels as the last axis.
    """
    steps = list(filter(_is_needed, steps))
    names = _names(steps, given, wanted, turned or {})
    checks = [Check(each) if isinstance(each, Node) else None for each in steps]
    code = _compiled(_text(steps, checks, names, given, wanted, turned or {}))
    scope: dict[str, Any] = {}
    for port, name in names.items():
        if _constant(port) is not None:
            scope[name] = _constant(port)
    scope.update(_SCOPE)
    reads = {}
    for k, (each, check) in enumerate(zip(steps, checks, strict=True)):
        if isinstance(each, Node) and check is not None:
            scope.update({f"node{k}": each, f"check{k}": check, f"taken{k}": check.taken})
            reads[each] = check, [names[port] for port in each.inputs]

    def find(node: Node | None, values: Mapping[str, Any]) -> None:
        if node is not None:
            check, read = reads[node]
            check.values([values.get(name, scope.get(name)) for name in read])

    scope["find"] = find
    begins = [_beginning(each) if isinstance(each, Node) else each.begin for each in steps]

    def start(context: Context) -> Compute:
        workspace = Workspace(context.compiled.memory)  # they run by turns
        runs = {f"run{k}": begin(context, workspace) for k, begin in enumerate(begins)}
        return FunctionType(code, scope | runs)

    return start


def _is_needed(step: Node | Part) -> bool:
    """Whether something is to be computed."""
    return isinstance(step, Part) or any(port.desc.constant is None for port in step.outputs)


def _beginning(node: Node) -> Begin:
    start = starter(node.op)
    return lambda context, _: start(context)


def _constant(port: Hashable) -> Array | None:
    return port.desc.constant if isinstance(port, Port) else None


def _reads(step: Node | Part) -> Sequence[Hashable]:
    return step.inputs if isinstance(step, Node) else step.reads


def _gives(step: Node | Part) -> Sequence[Port]:
    return step.outputs if isinstance(step, Node) else step.gives


def _names(
    steps: Sequence[Node | Part],
    given: Sequence[Hashable],
    wanted: Sequence[Port],
    turned: Mapping[Port, Hashable],
) -> dict[Hashable, str]:
    """Return the name in the text of each array."""
    ports: dict[Hashable, None] = dict.fromkeys([*given, *turned.values(), *wanted])
    for each in steps:
        ports.update(dict.fromkeys([*_reads(each), *_gives(each)]))
    return {port: f"v{number}" for number, port in enumerate(ports)}


def _text(
    steps: Sequence[Node | Part],
    checks: Sequence[Check | None],
    names: Mapping[Hashable, str],
    given: Sequence[Hashable],
    wanted: Sequence[Port],
    turned: Mapping[Port, Hashable],
) -> str:
    """Return the function's text, which has numbers of steps and arrays, and no other names.

    Errors name the layer that its `node` is; see `foreign_errors`.
    """
    last = {port: k for k, each in enumerate(steps) for port in _reads(each)}
    keep = {*wanted, *(port for port in names if _constant(port) is not None)}
    lines = [f"def walk({', '.join(names[port] for port in given)}):"]
    lines += [" go_on = current_bounds().check", " try:", "  node = None"]
    lines += [f"  {names[to]} = moveaxis({names[port]}, 1, -1)" for port, to in turned.items()]
    for k, (each, check) in enumerate(zip(steps, checks, strict=True)):
        reads = ", ".join(names[port] for port in _reads(each))
        gives = [names[port] for port in _gives(each)]
        if isinstance(each, Node) and check is not None:
            sizes = "".join(f"{names[each.inputs[number]]}.shape, " for number in check.sized)
            lines += [f"  node = node{k}", "  go_on()"]
            lines += [f"  if ({sizes}) not in taken{k}: check{k}([{reads}])"]
            lines += _call(f"run{k}({reads})", gives)
        else:
            lines += ["  node = None", f"  [{', '.join(gives)}] = outputs_of(run{k}({reads}))"]
        gone = [names[port] for port in last if last[port] == k and port not in keep]
        lines += [f"  {' = '.join(gone)} = None"] if gone else []
    lines += [" except broken:", "  find(node, locals())", "  raise"]
    lines += [f" return [{', '.join(names[port] for port in wanted)}]"]
    return "\n".join(lines)


def _call(call: str, writes: Sequence[str]) -> list[str]:
    """Lines that compute values."""
    if len(writes) != 1:
        lines = [f"  [{', '.join(writes)}] = outputs_of({call})"]
        return lines + [f"  {each} = counted(node.op, {each})" for each in writes]
    (value,) = writes
    is_counted = f"type({value}) is not ndarray or {value}.nbytes >= {COUNTED_BYTES}"
    return [f"  {value} = {call}", f"  if {is_counted}: {value} = single(node.op, {value})"]


def _single(op: Op, computed: Array | Sequence[Array]) -> Any:
    """Return the only value that was computed, counted as the network's if it is large."""
    (result,) = outputs_of(computed)
    return counted(op, result)


_SCOPE: dict[str, Any] = {
    "__name__": __name__,  # which errors tell whose code it is by
    "broken": (ArithmeticError, LookupError, TypeError, ValueError),
    "counted": counted,
    "current_bounds": current_bounds,
    "moveaxis": np.moveaxis,
    "ndarray": np.ndarray,
    "outputs_of": outputs_of,
    "single": _single,
}
"""What the function finds by name, besides what is the nodes' own."""


@lru_cache(maxsize=KEPT)
def _compiled(text: str) -> CodeType:
    """Return the code of the function that a text defines."""
    scope: dict[str, Any] = {}
    exec(compile(text, "<walk>", "exec"), scope)  # noqa: S102 - our own text
    function: FunctionType = scope["walk"]
    return function.__code__
