"""Every pointwise operation as one OpenCL C expression, declared once.

From an expression come the stand-alone kernel of a group of pointwise operations and the epilogue
of every other kernel. In an expression ``x y z w v`` are the inputs in order, ``F`` is the type
of the result, and ``{name}`` is an attribute of the operation. ``WHERE(c, a, b)`` is ``c ? a : b``
in a form that also works on vectors; an expression that does not is declared ``scalar``.
Helper functions are in include/pointwise.cl.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Union

import numpy as np

from polydevice.dtype import ElementType
from polydevice.ops import activation, arithmetic, bitwise, comparison, convert, logical, quantize
from polydevice.ops import math as functions
from polydevice.ops.op import Op
from polydevice.ops.python_operation import PythonOperation
from polydevice.ops.select import Select
from polydevice_gpu.kernels.types import compute_type, is_float

Template = Union[str, "Callable[[Any, list[ElementType]], str]"]
"""An expression, or a function from the operation and its inputs' types to one."""


@dataclass(frozen=True)
class Pointwise:
    """How one operation is written.

    Attributes:
        template: the expression for floating-point inputs; for all types when `any_type`.
        integer: the expression for integers; "" computes in float and truncates.
        any_type: whether the first expression serves integers and booleans too.
        scalar: whether the expression works on single elements only.
    """

    template: Template
    integer: Template = ""
    any_type: bool = False
    scalar: bool = False


_TABLE: dict[type[Op], Pointwise] = {}


def declare(
    op: type[Op],
    template: Template,
    integer: Template = "",
    *,
    any_type: bool = False,
    scalar: bool = False,
) -> None:
    """Enter the expression of an operation; raises ValueError when it has one already."""
    if op in _TABLE:
        raise ValueError(f"{op.__name__} already has an expression")
    _TABLE[op] = Pointwise(template, integer, any_type, scalar)


def find(op: type[Op]) -> Pointwise | None:
    """Return how an operation is written; None for one that is not pointwise here."""
    known = _TABLE.get(op)
    if known is None and issubclass(op, PythonOperation) and op.definition.element is not None:
        return Pointwise(_call, any_type=True, scalar=True)
    return known


def expression(
    op: Op, arguments: list[str], kinds: list[ElementType], result: ElementType, width: int = 1
) -> str:
    """Write one operation.

    Args:
        op: the operation, with its attributes.
        arguments: names of the variables that hold its inputs.
        kinds: element types of the inputs.
        result: element type of the result.
        width: number of elements in each variable; above 1 for vectors of floats.

    Returns:
        An expression of the result's compute type.
    """
    form = find(type(op))
    assert form is not None, f"{op.type} is not pointwise"
    suffix = str(width) if width > 1 else ""
    target = compute_type(result) + suffix
    on_floats = any(kind.is_float for kind in kinds)
    template = form.template
    if not on_floats and not form.any_type:
        if form.integer:
            template = form.integer
        else:
            # Integers through float: exact up to 2^24, like the original's reference.
            arguments = [f"(float)({name})" for name in arguments]
            inner = template(op, kinds) if callable(template) else template
            return f"({target})({_fill(inner, op, arguments, 'float')})"
    text = template(op, kinds) if callable(template) else template
    text = _fill(text, op, arguments, target)
    return text if width > 1 or is_float(target) else f"({target})({text})"


def is_vectorizable(op: Op) -> bool:
    """Whether the expression works on vectors of floats."""
    form = find(type(op))
    return form is not None and not form.scalar


def user_function(
    op: PythonOperation, kinds: Sequence[ElementType], result: ElementType
) -> tuple[str, str]:
    """Write the OpenCL function of a user's body: its declaration and its definition.

    The definition stands at the end of a source, since it renumbers the lines that follow: errors
    of the compiler name the Python file and the line there.

    Args:
        op: the operation, which has an OpenCL body.
        kinds: element types of its inputs.
        result: element type of what it returns.
    """
    name = _function_name(op, kinds)
    body = op.definition.element
    assert body is not None
    given = [f"{compute_type(kind)} {of}" for kind, of in zip(kinds, body.parameters)]
    given += [f"{_c_type(value)} {key}" for key, value in op.attributes().items()]
    head = f"static inline {compute_type(result)} {name}({', '.join(given)})"
    file = body.file.replace("\\", "/").replace('"', "'")
    return f"{head};", f'{head} {{\n#line {body.line} "{file}"\n{body.body}\n}}'


def _call(op: PythonOperation, kinds: list[ElementType]) -> str:
    """Write the call of a user's body; `expression` asks for it with the types of its inputs."""
    given = list("xyzwv"[: len(kinds)])
    values = op.attributes().values()
    given += [literal(value) if isinstance(value, float) else str(int(value)) for value in values]
    return f"{_function_name(op, kinds)}({', '.join(given)})"


def _function_name(op: PythonOperation, kinds: Sequence[ElementType]) -> str:
    types = "_".join(compute_type(kind) for kind in kinds)
    return re.sub(r"\W", "_", f"user_{op.domain}_{op.type}_{types}")


def _c_type(value: object) -> str:
    return "float" if isinstance(value, float) else "int"


def literal(value: float, kind: str = "float") -> str:
    """Write a number as an OpenCL C literal of a floating-point type."""
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    text = repr(float(value))
    return f"({text})" if kind.startswith("double") else f"({text}f)"


_TOKEN = re.compile(r"\b([xyzwvF]|WHERE|ROUND_HALF|ROUND_BFLOAT)\b|\{(\w+)\}")


def _fill(template: str, op: Op, arguments: list[str], kind: str) -> str:
    names = dict(zip("xyzwv", arguments, strict=False))

    def replace(match: re.Match[str]) -> str:
        name, attribute = match.groups()
        if attribute:
            return _attribute(getattr(op, attribute), kind)
        if name == "F":
            return kind
        return names.get(name, f"{name}_{kind}")

    return _TOKEN.sub(replace, template)


def _attribute(value: Any, kind: str) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, int):
        return f"({value})"
    if kind.startswith(("float", "double")):
        return literal(value, kind)
    if math.isinf(value):
        return f"({'LONG_MAX' if value > 0 else 'LONG_MIN'})"
    return f"({int(value)})"


# -- activations -------------------------------------------------------------------------------

declare(activation.Relu, "WHERE(x < 0, 0, x)", any_type=True)
declare(activation.Sigmoid, "1 / (1 + exp(-x))")
declare(activation.Elu, "WHERE(x < 0, {alpha} * expm1(x), x)")
declare(activation.PRelu, "WHERE(x < 0, x * y, x)", any_type=True)
declare(activation.Selu, "z * WHERE(x > 0, x, y * expm1(x))")
declare(activation.HardSigmoid, "clamp(x * y + z, (F)(0), (F)(1))")
declare(activation.HSwish, "x * clamp(x + 3, (F)(0), (F)(6)) / 6")
declare(activation.HSigmoid, "clamp(x + 3, (F)(0), (F)(6)) / 6")
declare(activation.SoftSign, "x / (1 + fabs(x))")
# log1p(exp(-|x|)) does not overflow, and keeps its precision where exp(x) is tiny.
declare(activation.SoftPlus, "fmax(x, (F)(0)) + log1p(exp(-fabs(x)))")
declare(activation.Mish, "x * tanh(fmax(x, (F)(0)) + log1p(exp(-fabs(x))))")
declare(
    activation.Gelu,
    lambda op, _: (
        "0.5f * x * (1 + erf(x * 0.70710678f))"
        if op.approximation_mode is activation.GeluApproximation.ERF
        else "0.5f * x * (1 + tanh(0.79788456f * (x + 0.044715f * x * x * x)))"
    ),
)
declare(
    activation.Swish,
    lambda _, kinds: "x / (1 + exp(-x))" if len(kinds) == 1 else "x / (1 + exp(-y * x))",
)


def _clamp(op: activation.Clamp, _: list[ElementType]) -> str:
    # fmin and fmax would turn NaN into a limit.
    parts = "x"
    if op.max != math.inf:
        parts = f"WHERE({parts} > {{max}}, {{max}}, {parts})"
    if op.min != -math.inf:
        parts = f"WHERE({parts} < {{min}}, {{min}}, {parts})"
    return parts


def _clamp_integer(op: activation.Clamp, kinds: list[ElementType]) -> str:
    info = np.iinfo(kinds[0].dtype)
    low = math.ceil(max(op.min, info.min))
    high = math.floor(min(op.max, info.max))
    suffix = "ul" if info.min == 0 else "l"
    # The smallest long has no literal of its own; no limit is needed there.
    lower = f"x < {low}{suffix} ? {low}{suffix} : " if low > info.min else ""
    return f"{lower}x > {high}{suffix} ? {high}{suffix} : x"


declare(activation.Clamp, _clamp, _clamp_integer)

# -- arithmetic --------------------------------------------------------------------------------

declare(arithmetic.Add, "x + y", any_type=True)
declare(arithmetic.Subtract, "x - y", any_type=True)
declare(arithmetic.Multiply, "x * y", any_type=True)
# INT_MIN / -1 and x / 0 stop the process on CPU devices, so neither reaches the divider.
_BY_MINUS_ONE = "(F)(-1) < 0 && y == (F)(-1)"
declare(
    arithmetic.Divide,
    "x / y",
    "y == 0 ? 0 : "
    + _BY_MINUS_ONE
    + " ? 0 - x : {pythondiv} ? x / y - (x % y != 0 && (x < 0) != (y < 0)) : x / y",
)
# What is left over from 0 and -1 is 0, as from 1. With the remainders inside of that condition
# LLVM 18, in PoCL 6, ends the process on chains of them (its InstCombine finds no fixpoint).
_DIVISOR = f"(y == 0 || ({_BY_MINUS_ONE}) ? 1 : y)"
declare(arithmetic.Mod, "fmod(x, y)", f"x % {_DIVISOR}")
declare(
    arithmetic.FloorMod,
    "fmod(x, y) + WHERE(fmod(x, y) != 0 & ((fmod(x, y) < 0) != (y < 0)), y, 0)",
    "x % D + (x % D != 0 && (x % D ^ y) < 0 ? y : 0)".replace("D", _DIVISOR),
)
# Either input's NaN wins, as in NumPy.
declare(arithmetic.Maximum, "WHERE(x > y | x != x, x, y)", "x > y ? x : y")
declare(arithmetic.Minimum, "WHERE(x < y | x != x, x, y)", "x < y ? x : y")
declare(arithmetic.Power, "pow(x, y)", "power_integer(x, y)")
declare(arithmetic.SquaredDifference, "(x - y) * (x - y)", any_type=True)

# -- bits --------------------------------------------------------------------------------------

declare(bitwise.BitwiseAnd, "x & y", any_type=True, scalar=True)
declare(bitwise.BitwiseOr, "x | y", any_type=True, scalar=True)
declare(bitwise.BitwiseXor, "x ^ y", any_type=True, scalar=True)
declare(
    bitwise.BitwiseNot,
    lambda _, kinds: "x == 0" if kinds[0] is ElementType.boolean else "~x",
    any_type=True,
    scalar=True,
)
declare(
    bitwise.BitwiseLeftShift,
    "y >= (F)(8 * sizeof(F)) ? 0 : (ulong)(x) << y",
    any_type=True,
    scalar=True,
)
declare(
    bitwise.BitwiseRightShift,
    "y >= (F)(8 * sizeof(F)) ? (x < 0 ? -1 : 0) : x >> y",
    any_type=True,
    scalar=True,
)

# -- comparisons and logic ---------------------------------------------------------------------

for _op, _text in {
    comparison.Equal: "x == y",
    comparison.NotEqual: "x != y",
    comparison.Less: "x < y",
    comparison.LessEqual: "x <= y",
    comparison.Greater: "x > y",
    comparison.GreaterEqual: "x >= y",
    logical.LogicalAnd: "x != 0 && y != 0",
    logical.LogicalOr: "x != 0 || y != 0",
    logical.LogicalXor: "(x != 0) != (y != 0)",
    logical.Xor: "(x != 0) != (y != 0)",
    logical.LogicalNot: "x == 0",
    Select: "x != 0 ? y : z",
}.items():
    declare(_op, _text, any_type=True, scalar=True)

# -- functions ---------------------------------------------------------------------------------

declare(functions.Abs, "fabs(x)", "x < 0 ? 0 - x : x")
declare(functions.Negative, "-x", any_type=True)
declare(functions.Sign, "WHERE(x > 0, 1, WHERE(x < 0, -1, x))", any_type=True)
declare(functions.Ceiling, "ceil(x)", "x")
declare(functions.Floor, "floor(x)", "x")
declare(
    functions.Round,
    lambda op, _: "rint(x)" if op.mode is functions.RoundMode.HALF_TO_EVEN else "round(x)",
    "x",
)
for _op, _text in {
    functions.Sqrt: "sqrt(x)",
    functions.Exp: "exp(x)",
    functions.Log: "log(x)",
    functions.Erf: "erf(x)",
    functions.Sin: "sin(x)",
    functions.Cos: "cos(x)",
    functions.Tan: "tan(x)",
    functions.Asin: "asin(x)",
    functions.Acos: "acos(x)",
    functions.Atan: "atan(x)",
    functions.Sinh: "sinh(x)",
    functions.Cosh: "cosh(x)",
    functions.Tanh: "tanh(x)",
    functions.Asinh: "asinh(x)",
    functions.Acosh: "acosh(x)",
    functions.Atanh: "atanh(x)",
}.items():
    declare(_op, _text)
declare(functions.ErfInv, "erf_inverse(x)", scalar=True)
declare(functions.Identity, "x", any_type=True)
declare(functions.IsNaN, "isnan(x)", scalar=True)
declare(functions.IsFinite, "isfinite(x)", scalar=True)
declare(
    functions.IsInf,
    "isinf(x) && (x > 0 ? {detect_positive} : {detect_negative})",
    scalar=True,
)


# -- conversions -------------------------------------------------------------------------------


# Bits of the mantissa, smallest exponent, largest number, what overflow becomes otherwise.
_NARROW_FLOATS = {
    ElementType.f8e4m3: (3, -6, 448.0, "NAN"),
    ElementType.f8e4m3fnuz: (3, -7, 240.0, "NAN"),
    ElementType.f8e5m2: (2, -14, 57344.0, "INFINITY"),
    ElementType.f8e5m2fnuz: (2, -15, 57344.0, "NAN"),
    ElementType.f4e2m1: (1, 0, 6.0, "NAN"),
}


def _rounded(kind: ElementType, saturate: bool) -> str:
    """Round to the nearest number of a narrow type, halves to even; it is held in f32."""
    bits, least, largest, beyond = _NARROW_FLOATS[kind]
    exponent = f"max(ilogb(fabs((F)(x))), {least})"
    y = f"ldexp(rint(ldexp((F)(x), {bits} - {exponent})), {exponent} - {bits})"
    limit = f"{largest}f" if saturate else f"(float){beyond}"
    return f"WHERE(fabs({y}) > (F)({largest}f), copysign((F)({limit}), (F)(x)), {y})"


_ROUNDED = {ElementType.f16: "ROUND_HALF((F)(x))", ElementType.bf16: "ROUND_BFLOAT((F)(x))"}
"""What has to be said where the result goes on to another operation instead of into memory."""

_EXACT = (ElementType.i8, ElementType.u8, ElementType.boolean)
"""Types whose numbers all are numbers of f16 and bf16."""


def _conversion(op: convert.Convert, kinds: list[ElementType]) -> str:
    kind = op.destination_type
    if kind in _NARROW_FLOATS:
        return _rounded(kind, op.saturate)
    if kind in _ROUNDED and kinds[0] not in (kind, *_EXACT):
        return _ROUNDED[kind]
    if kind is ElementType.boolean:
        return "x != 0"
    if kind.is_float:
        return "x"
    # Through long: a float outside the range of a narrow type keeps its low bits, like NumPy.
    return "(F)(long)(x)" if kind is not ElementType.u64 else "(F)(x)"


declare(convert.Convert, _conversion, any_type=True)


def _same_bits(op: convert.BitCast, kinds: list[ElementType]) -> str:
    """Integers and f32; the host casts what kernels hold as another type."""
    bits = "as_uint(x)" if kinds[0].is_float else "x"
    if op.destination_type.is_float:
        return f"as_float((uint)({bits}))"
    return (
        f"as_{compute_type(op.destination_type)}(({_UNSIGNED[op.destination_type.bits]})({bits}))"
    )


_UNSIGNED = {8: "uchar", 16: "ushort", 32: "uint", 64: "ulong"}
"""The unsigned C type of so many bits."""

declare(convert.BitCast, _same_bits, any_type=True, scalar=True)

# -- quantisation ---------------------------------------------------------------------------------


def _fake_quantize(op: quantize.FakeQuantize, _: list[ElementType]) -> str:
    steps = f"{op.levels - 1}"
    inner = f"rint((x - y) / (z - y) * {steps}) / {steps} * (v - w) + w"
    return f"WHERE(x <= fmin(y, z), w, WHERE(x > fmax(y, z), v, {inner}))"


declare(quantize.FakeQuantize, _fake_quantize)
