"""OpenCL functions of a `Fragment`: the body of fused kernels and the epilogue of all others."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from importlib import resources

import numpy as np

from polydevice.dataclass import dataclass
from polydevice.dtype import ElementType
from polydevice.ops.activation import Clamp
from polydevice.ops.arithmetic import Add, Divide, FloorMod, Mod, Multiply, Subtract
from polydevice.ops.convert import Convert
from polydevice.ops.math import Sqrt
from polydevice.ops.python_operation import PythonOperation
from polydevice.ops.quantize import FakeQuantize
from polydevice_gpu.kernels import types
from polydevice_gpu.kernels.pointwise import expression
from polydevice_gpu.ops import Fragment, Step, SubtractProduct, ToByte


@dataclass(frozen=True)
class Operand:
    """Where an input of a fragment comes from.

    Attributes:
        role: the tensor's name in the kernel (IN0, EXT2); "" for the value handed over.
        step: distance in memory between neighbours along the last coordinate: 0, 1, or None for
            anything else.
        is_whole: whether ``<role>_WHOLE<width>`` says of vectors that they lie side by side.
    """

    role: str
    step: int | None = None
    is_whole: bool = False


ROUNDED_DIVISIONS = "-cl-fp32-correctly-rounded-divide-sqrt"
"""Option of OpenCL's compiler without which quotients may be off by 2.5 units in the last place."""


def needs_rounding(fragment: Fragment | None) -> bool:
    """Whether a fragment divides or takes roots as the network says, and not as a function does.

    On an H100 QuantizeLinear went to the other level without. Not for all programs: long kernels
    may then run in smaller work-groups only.
    """
    rounded = (Divide, Mod, FloorMod, Sqrt, FakeQuantize)
    return fragment is not None and any(isinstance(step.op, rounded) for step in fragment.steps)


def user_functions(fragment: Fragment | None) -> list[tuple[str, str]]:
    """Write the functions of users' operations that a fragment calls: declaration, definition."""
    steps = fragment.steps if fragment is not None else ()
    return [
        expression.user_function(
            step.op, [fragment.value_type(a) for a in step.arguments], step.element_type
        )
        for step in steps
        if fragment is not None and isinstance(step.op, PythonOperation)
    ]


def coordinates(count: int) -> str:
    """Write the names of that many coordinates, each followed by a comma."""
    return "".join(f"c{number}, " for number in range(count))


def is_vectorizable(fragment: Fragment) -> bool:
    """Whether every operation works on vectors: those of floats, and conversions of integers."""
    if not all(types.compute_type(kind) in types.IN_VECTORS for kind in fragment.inputs):
        return False
    return all(_works_on_vectors(fragment, step) for step in fragment.steps)


def _works_on_vectors(fragment: Fragment, step: Step) -> bool:
    kinds = [types.compute_type(fragment.value_type(a)) for a in step.arguments]
    made = types.compute_type(step.element_type)
    if {*kinds, made} == {"float"}:
        return expression.is_vectorizable(step.op)
    if {*kinds, made} == {"int"}:
        return isinstance(step.op, (Add, Subtract, Multiply))
    if isinstance(step.op, (ToByte, SubtractProduct)):
        return True
    if not isinstance(step.op, Convert) or made not in types.IN_VECTORS:
        return False
    if made == "float" or (made == "int" and kinds[0] in ("char", "uchar")):
        return True
    return kinds == ["float"] and _is_clamped(fragment, step)


def _is_clamped(fragment: Fragment, step: Step) -> bool:
    """Whether what a step converts lies in the range of the bytes that it makes."""
    before = step.arguments[0] - len(fragment.inputs)
    if before < 0 or step.element_type not in (ElementType.u8, ElementType.i8):
        return False
    clamp, limits = fragment.steps[before].op, np.iinfo(step.element_type.dtype)
    return isinstance(clamp, Clamp) and limits.min <= clamp.min <= clamp.max <= limits.max


def function(
    name: str, fragment: Fragment, operands: Sequence[Operand], rank: int, width: int = 1
) -> str:
    """Write the function ``name(value, c0, c1, …, <parameters of the kernel>)``.

    Args:
        name: of the function.
        fragment: what it computes; for a width above 1 it must be vectorizable.
        operands: where each input comes from. Those that are handed over are parameters in place
            of ``value``, in their order; without any there is none.
        rank: number of coordinates.
        width: elements along the last coordinate.
    """
    suffix = str(width) if width > 1 else ""
    handed_over = [n for n, operand in enumerate(operands) if not operand.role]
    lines = []
    for number, operand in enumerate(operands):
        if operand.role:
            kind = types.compute_type(fragment.inputs[number]) + suffix
            lines.append(f"    const {kind} t{number} = {_load(operand, rank, width, kind)};")
    for index, step in enumerate(fragment.steps):
        kinds = [fragment.value_type(a) for a in step.arguments]
        names = [f"t{a}" for a in step.arguments]
        text = expression.expression(step.op, names, kinds, step.element_type, width)
        kind = types.compute_type(step.element_type) + suffix
        lines.append(f"    const {kind} t{len(operands) + index} = {text};")
    last = len(operands) + len(fragment.steps) - 1 if fragment.steps else 0
    result = types.compute_type(fragment.element_type) + suffix
    parameters = "".join(f"int c{n}, " for n in range(rank))
    for number in reversed(handed_over):
        kind = types.compute_type(fragment.inputs[number]) + suffix
        parameters = f"const {kind} t{number}, {parameters}"
    body = "\n".join(lines)
    helpers = "".join(_helpers(name) for name, used in _HELPERS.items() if used.search(body))
    head = f"{helpers}static inline {result} {name}({parameters}PARAMETERS)"
    return f"{head} {{\n{body}\n    return t{last};\n}}"


def _each(vector_type: str, width: int, rank: int, kind: str, lanes: str, store: str) -> str:
    """Write parameters and body of a function that stores some lanes one by one.

    Args:
        vector_type: of the vector handed over, ``v``.
        width: its lanes.
        rank: number of coordinates.
        kind: type of what is stored of a lane.
        lanes: the vector of that.
        store: stores ``lanes[lane]``.
    """
    coords = "".join(f"int c{n}, " for n in range(rank))
    return (
        f"(int count, {vector_type} v, {coords}PARAMETERS) {{\n"
        f"    {kind} lanes[{width}];\n"
        f"    vstore{width}({lanes}, 0, lanes);\n"
        f"    for (int lane = 0; lane < count; lane++) {{ {store} }}\n}}"
    )


_HELPERS = {
    "words": re.compile(r"\b(SATURATE|FLOATS|BYTES)_"),
    "short_erf": re.compile(r"\bSHORT_ERF_"),
}
"""Files of what few functions use, in the folder "include"."""


@functools.cache
def _helpers(name: str) -> str:
    path = resources.files("polydevice_gpu.kernels").joinpath(f"include/{name}.cl")
    return path.read_text("utf-8")


def _load(operand: Operand, rank: int, width: int, kind: str) -> str:
    role = operand.role
    names = [f"c{n}" for n in range(rank)]
    at = f"{role}_AT({', '.join(names)})"
    if width == 1:
        return f"{role}_LOAD({at})"
    if operand.step == 0:
        return f"({kind})({role}_LOAD({at}))"
    if operand.step == 1:
        return f"{role}_LOAD{width}({at})"
    lanes = []
    for lane in range(width):
        shifted = [*names[:-1], f"{names[-1]} + {lane}"]
        lanes.append(f"{role}_LOAD({role}_AT({', '.join(shifted)}))")
    text = f"({kind})({', '.join(lanes)})"
    if not operand.is_whole:
        return text
    names_ = ", ".join(names)
    inside = f"{role}_INSIDE_LOAD{width}({role}_INSIDE_AT({names_}))"
    return f"{role}_WHOLE{width}({names_}) ? {inside} : {text}"


def write_functions(
    epilogue: Fragment | None,
    extras: Sequence[Operand],
    rank: int,
    widths: Sequence[int],
    result_type: str,
    stored: str,
    *,
    contiguous: bool,
    whole_vectors: bool = False,
) -> list[str]:
    """Write WRITE, WRITE<n> and WRITE<n>_FIRST, which apply the epilogue and store.

    Where results leave in vectors there are RESULT<n>, the epilogue alone, and its type, too.

    Args:
        epilogue: the pointwise operations, or None.
        extras: the epilogue's further inputs.
        rank: number of coordinates of the result.
        widths: vector widths wanted.
        result_type: C type of the value handed over.
        stored: C type in which the result is computed that is stored.
        contiguous: whether neighbours along the last coordinate are neighbours in memory.
        whole_vectors: whether the epilogue takes less time for a vector, some lanes of which are
            not needed or go to places apart, than lane by lane.
    """
    names = ", ".join(f"c{n}" for n in range(rank))
    where = coordinates(rank)
    texts = []
    value = "v"
    if epilogue is not None:
        operands = [Operand(""), *extras]
        texts.append(function("epilogue", epilogue, operands, rank))
        value = f"epilogue(v, {where}ARGUMENTS)"
    texts.append(f"#define WRITE(v, {names}) OUT0_STORE(OUT0_AT({names}), {value})")
    last = result_type if epilogue is None else types.compute_type(epilogue.element_type)
    vectors = last == stored and {result_type, stored} <= set(types.IN_VECTORS)
    vectors = vectors and (epilogue is None or is_vectorizable(epilogue))
    for width in widths:
        if width == 1:
            continue
        vector_type = f"{result_type}{width}"
        if epilogue is not None and vectors:
            operands = [Operand(""), *extras]
            texts.append(function(f"epilogue{width}", epilogue, operands, rank, width))
        whole = f"epilogue{width}(v, {where}ARGUMENTS)" if epilogue is not None else "v"
        first, shifted = f"write{width}_first", f"{names} + lane"
        one = f"const {result_type} v = lanes[lane]; WRITE(v, {shifted});"
        one_by_one = _each(vector_type, width, rank, result_type, "v", one)
        store = f"OUT0_STORE(OUT0_AT({shifted}), lanes[lane]);"
        at_once = _each(vector_type, width, rank, last, whole, store)
        is_short = epilogue is not None and vectors and whole_vectors
        # Lanes behind the end read what is the same for all.
        ends_short = is_short and all(extra.step == 0 for extra in extras)
        texts.append(f"static inline void {first}{at_once if ends_short else one_by_one}")
        texts.append(f"#define WRITE{width}_FIRST(n, v, {names}) {first}(n, v, {where}ARGUMENTS)")
        if vectors and contiguous:
            store = f"OUT0_STORE{width}(OUT0_AT({names}), {whole})"
            texts.append(f"#define WRITE{width}(v, {names}) {store}")
            texts.append(f"#define RESULT{width}(v, {names}) {whole}")
            texts.append(f"#define RESULT{width}_T {last}{width}")
            continue
        if is_short and not ends_short:
            first = f"write{width}_apart"
            texts.append(f"static inline void {first}{at_once}")
        texts.append(f"#define WRITE{width}(v, {names}) {first}({width}, v, {where}ARGUMENTS)")
    return texts
