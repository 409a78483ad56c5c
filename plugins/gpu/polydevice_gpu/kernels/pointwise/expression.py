"""Pointwise operations as OpenCL C expressions; the modules of this room declare them, once each.

From an expression come the stand-alone kernel of a group of pointwise operations and the epilogue
of every other kernel. In an expression ``x y z w v`` are the inputs in order, ``F`` is the type
of the result, and ``{name}`` is an attribute of the operation. ``WHERE(c, a, b)`` is ``c ? a : b``
in a form that also works on vectors; an expression that does not is declared ``scalar``.
Helper functions are in include/pointwise.cl. A module declares what the module of its name in
`polydevice.ops` defines.
"""

from __future__ import annotations

import enum
import functools
import importlib
import inspect
import math
import pkgutil
import re
from collections.abc import Callable, Sequence
from typing import Any, Union

from polydevice.dataclass import dataclass
from polydevice.dtype import ElementType
from polydevice.ops.convert import Convert
from polydevice.ops.op import Op
from polydevice.ops.python_operation import PythonOperation
from polydevice_gpu.kernels.types import compute_type, is_float
from polydevice_gpu.ops import ToByte

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
        place: file and line that declare it; "" for the user's own.
    """

    template: Template
    integer: Template = ""
    any_type: bool = False
    scalar: bool = False
    place: str = ""


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
    own = inspect.currentframe()
    caller = own.f_back if own is not None else None
    assert caller is not None, "Python knows no frames here"
    file = caller.f_globals["__name__"].replace(".", "/")
    place = f"{file}.py:{caller.f_lineno}"
    _TABLE[op] = Pointwise(template, integer, any_type, scalar, place)


def find(op: type[Op]) -> Pointwise | None:
    """Return how an operation is written; None for one that is not pointwise here."""
    _load()
    known = _TABLE.get(op)
    if known is None and issubclass(op, PythonOperation) and op.definition.element is not None:
        return Pointwise(_call, any_type=True, scalar=True)
    return known


@functools.cache
def _load() -> None:
    """Import the modules that declare expressions."""
    package = importlib.import_module(__name__.rpartition(".")[0])
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")


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
    if width > 1 and isinstance(op, Convert) and compute_type(kinds[0]) != compute_type(result):
        given = compute_type(kinds[0])
        if width in _WORDS and target == f"float{width}" and given in ("char", "uchar"):
            return f"FLOATS_{given}{width}({arguments[0]})"
        # Bytes by way of i32: from what was clamped to their range, this is the same number.
        x = arguments[0] if is_float(target) else f"convert_int{suffix}({arguments[0]})"
        return f"convert_{target}({x})"
    if isinstance(op, ToByte):
        inner = template(op, kinds) if callable(template) else template
        inner = _fill(inner, op, arguments, f"float{suffix}")
        if width in _WORDS:
            return f"BYTES_{target}(as_int{suffix}({inner}) + ({op.zero}))"
        return f"convert_{target}(as_int{suffix}({inner}) + ({op.zero} - 0x4B400000))"
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


_WORDS = (4, 8)
"""Lengths of vectors of bytes that include/words.cl has."""

_TOKEN = re.compile(
    r"\b([xyzwvF]|WHERE|ROUND_HALF|ROUND_BFLOAT|GELU|SHORT_ERF|SATURATE|INTS)\b|\{(\w+)\}"
)


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
