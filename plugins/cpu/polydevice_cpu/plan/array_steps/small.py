"""What machine code computes of few numbers instead of NumPy, as a part of one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polydevice.dtype import Array
from polydevice.ops import arithmetic, bitwise, comparison, logical, math
from polydevice.ops.convert import Convert
from polydevice.ops.op import Op
from polydevice.ops.pointwise import AutoBroadcast, BinaryPointwise
from polydevice.ops.reduce import ReduceSum
from polydevice.ops.select import Select
from polydevice.shape import normalize_axis
from polydevice.symbolic_size import is_formula
from polydevice_cpu.algorithms.by_machine.code import Code, Told
from polydevice_cpu.algorithms.by_machine.rows import elementwise
from polydevice_cpu.algorithms.by_machine.small import DIVISION, Form, Function, prepared, summed
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.step import ArrayStep, ByMachine, Compute, Start
from polydevice_cpu.plan.value import Value

_KINDS: dict[np.dtype[Any], str] = {
    np.dtype(np.float32): "f32",
    np.dtype(np.float16): "f16",
    np.dtype(np.float64): "f64",
    np.dtype(np.int64): "i64",
    np.dtype(np.int32): "i32",
    np.dtype(np.int16): "i16",
    np.dtype(np.int8): "i8",
    np.dtype(np.uint64): "u64",
    np.dtype(np.uint32): "u32",
    np.dtype(np.uint16): "u16",
    np.dtype(np.uint8): "byte",
    np.dtype(np.bool_): "byte",
}
_AS_BITS = {8: "i64", 4: "i32", 2: "i16", 1: "byte"}

_ARITHMETIC: dict[type[Op], str] = {
    arithmetic.Add: "add",
    arithmetic.Subtract: "subtract",
    arithmetic.Multiply: "multiply",
}
_OF_INTEGERS: dict[type[Op], str] = {
    **_ARITHMETIC,
    arithmetic.Minimum: "minimum",
    arithmetic.Maximum: "maximum",
}
_QUOTIENTS: dict[type[Op], str] = {
    arithmetic.Divide: "divide",
    arithmetic.Mod: "remainder",
    arithmetic.FloorMod: "modulo",
}
_OF_FLOATS: dict[type[Op], str] = {**_ARITHMETIC, arithmetic.Divide: "divide"}
_COMPARISONS: dict[type[Op], str] = {
    comparison.Equal: "equal",
    comparison.NotEqual: "not equal",
    comparison.Less: "less",
    comparison.LessEqual: "less or equal",
    comparison.Greater: "greater",
    comparison.GreaterEqual: "greater or equal",
}
_OF_BITS: dict[type[Op], str] = {
    logical.LogicalAnd: "and",
    logical.LogicalOr: "or",
    logical.LogicalXor: "xor",
}
_BITWISE: dict[type[Op], str] = {
    bitwise.BitwiseAnd: "and",
    bitwise.BitwiseOr: "or",
    bitwise.BitwiseXor: "xor",
}
_SHIFTS: dict[type[Op], str] = {
    bitwise.BitwiseLeftShift: "shift left",
    bitwise.BitwiseRightShift: "shift right",
}
_OF_ONE_INTEGER: dict[type[Op], str] = {
    math.Abs: "abs",
    math.Negative: "negative",
    math.Sign: "sign",
}
_ROUNDED: dict[type[Op], str] = {
    math.Floor: "f32 floor",
    math.Ceiling: "f32 ceiling",
}
_TESTS: dict[type[Op], str] = {
    math.IsNaN: "f32 is NaN",
    math.IsInf: "f32 is infinite",
    math.IsFinite: "f32 is finite",
}


def with_code(op: Op, start: Start) -> Start:
    """Return what starts an operation with machine code, where there are few elements."""
    if isinstance(op, ReduceSum):
        return lambda context: ByMachine(start(context), _summed)
    if _function(op, None) is None:
        return start

    def start_code(context: Context) -> Compute:
        def prepare(values: Sequence[Value]) -> Told | None:
            function = _function(op, [each.dtype for each in values])
            forms = [form for each in values if (form := _form(each)) is not None]
            if function is None or len(forms) < len(values):
                return None
            return prepared(function, forms)

        # Quotients of integers refuse a divisor that is 0.
        return ByMachine(start(context), prepare, may_refuse=type(op) in _QUOTIENTS)

    return start_code


def _summed(values: Sequence[Value]) -> Code | None:
    """The code of sums of integers along axes that are known."""
    x, axes, result = values
    kind, known = _KINDS.get(x.dtype), axes.storage.array
    forms = _form(x), _form(result)
    if kind not in ("i64", "i32") or x.dtype != result.dtype or known is None or axes.offset_bytes:
        return None
    if forms[0] is None or forms[1] is None or is_formula(known):
        return None
    rank = len(x.shape)
    along = [normalize_axis(int(axis), rank) for axis in known.reshape(-1)] if rank else []
    told = summed(kind, forms[0], forms[1], along)
    return None if told is None else Code.of(told)


def _form(value: Value) -> Form | None:
    if value.strides is None:
        return None
    return value.shape, tuple(step * value.dtype.itemsize for step in value.strides)


def _function(op: Op, kinds: Sequence[np.dtype[Any]] | None) -> Function | None:
    """The function of elements of these types, the last one the result's; None without code.

    Without types: any function, if there is code for some.
    """
    if isinstance(op, BinaryPointwise) and op.auto_broadcast is AutoBroadcast.PDPD:
        return None
    if kinds is None:
        tables = [_OF_INTEGERS, _OF_FLOATS, _COMPARISONS, _OF_BITS]
        tables += _QUOTIENTS, _BITWISE, _TESTS, _SHIFTS, _OF_ONE_INTEGER, _ROUNDED
        is_known = any(type(op) in each for each in tables)
        unary = logical.LogicalNot, bitwise.BitwiseNot
        is_known = is_known or isinstance(op, (Select, Convert, *unary))
        return Function((), (), "") if is_known else None
    names = tuple(_KINDS.get(kind, "") for kind in kinds)
    if "" in names or "f16" in names:
        is_known = isinstance(op, Convert) and {*names} == {"f16", "f32"}
        return Function(names[:1], (), names[1]) if is_known else None
    *reads, store = names
    if isinstance(op, Select):
        if kinds[1] != kinds[2] or reads[0] != "byte" or op.auto_broadcast is AutoBroadcast.PDPD:
            return None
        bits = _AS_BITS[kinds[1].itemsize]
        return Function(("byte", bits, bits), ("select",), bits)
    if isinstance(op, Convert):
        steps = _converting(reads[0], kinds[-1])
        return None if steps is None else Function(tuple(reads), steps, store)
    if isinstance(op, (logical.LogicalNot, bitwise.BitwiseNot)):
        is_boolean = kinds[0] == np.bool_
        may = is_boolean or isinstance(op, bitwise.BitwiseNot)
        return Function((*reads,), ("not" if is_boolean else "invert",), store) if may else None
    if type(op) in _TESTS:
        return _test(op, reads)
    if type(op) in _ROUNDED:
        return Function(("f32",), (_ROUNDED[type(op)],), "f32") if reads == ["f32"] else None
    if type(op) in _OF_ONE_INTEGER:
        step = _OF_ONE_INTEGER[type(op)]
        return None if kinds[0].kind not in "iu" else Function((*reads,), (step,), store)
    if reads[0] != reads[1] or kinds[0] != kinds[1]:
        return None
    steps = _steps(op, reads[0], kinds[0].kind)
    return None if steps is None else Function(tuple(reads), steps, store)


def _test(op: Op, reads: Sequence[str]) -> Function | None:
    """What asks an element of f32 something; None without code."""
    if isinstance(op, math.IsInf) and not (op.detect_negative and op.detect_positive):
        return None
    return Function(("f32",), (_TESTS[type(op)],), "byte") if reads == ["f32"] else None


def _steps(op: Op, read: str, what: str) -> tuple[str, ...] | None:
    """What is computed of two elements of one type, and NumPy's kind of it; None without code."""
    kind, is_boolean = type(op), what == "b"
    if kind in _OF_BITS:
        return (_OF_BITS[kind],) if is_boolean else None
    table = _COMPARISONS if kind in _COMPARISONS else None
    if kind in _BITWISE:
        return (_BITWISE[kind],)
    if kind in _SHIFTS and what in "iu":
        return (
            ("shift down",) if _SHIFTS[kind] == "shift right" and what == "i" else (_SHIFTS[kind],)
        )
    if read == "f64" and table:
        return None
    if read in ("f32", "f64"):
        step = (table or _OF_FLOATS).get(kind)
        return None if step is None else (f"{read} {step}",)
    if is_boolean and table is None:
        return None
    if kind in _QUOTIENTS:
        down = " down" if isinstance(op, arithmetic.Divide) and op.pythondiv else ""
        return *DIVISION, _QUOTIENTS[kind] + down
    step = (table or _OF_INTEGERS).get(kind)
    return None if step is None else (step,)


def _converting(read: str, target: np.dtype[Any]) -> tuple[str, ...] | None:
    """How elements become others.

    Not floats unsigned integers of 4 and 8 bytes: what lies beyond NumPy makes something else of.
    Narrow ones are made of i32.
    """
    if "f64" in (read, _KINDS[target]):
        of_floats = {"f64 f32": ("f64 to f32",), "f32 f64": ("f32 to f64",), "f64 f64": ()}
        return of_floats.get(f"{read} {_KINDS[target]}")
    if target == np.bool_:
        return ("f32 is not 0",) if read == "f32" else ("is not 0",)
    if read == "f32" and target.itemsize < 4:
        return ("f32 to i32",)
    if read == "f32":
        return {"f32": (), "i64": ("from f32",), "i32": ("f32 to i32",)}.get(_KINDS[target])
    return ("to f32",) if _KINDS[target] == "f32" else ()


def copying(name: str, type_: str, source: Value, target: Value) -> ArrayStep:
    """Return a step that copies a value to another, repeated and converted as NumPy does."""
    return ArrayStep(name, type_, lambda _: _COPY, [source], [target], writes=True)


def _copy(source: Array, target: Array) -> tuple[()]:
    np.copyto(target, source, casting="unsafe")
    return ()


def _prepare_copy(values: Sequence[Value]) -> Told | None:
    source, target = values
    forms = [form for each in values if (form := _form(each)) is not None]
    if len(forms) < len(values) or source.dtype != target.dtype or source.dtype.hasobject:
        return None
    size = source.dtype.itemsize
    bits = _AS_BITS.get(size)
    few = None if bits is None else prepared(Function((bits,), (), bits), forms)
    return few or elementwise.copied(forms[0], forms[1], size)


_COPY = ByMachine(_copy, _prepare_copy, may_refuse=False)
