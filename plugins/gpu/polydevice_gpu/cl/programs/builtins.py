"""Declarations of the built-in functions that a program names, where drivers keep them in a header.

For every program PoCL lets its compiler parse a header of all functions, for all types: 895 KB.
That is 105 of the 123 ms that building a small program takes (PoCL 3.1, AMD EPYC), of 216 with its
first launch. Without the header, and with declarations of what is named, building takes 18 ms.

A function has all of its overloads here or none: one that lacks some would take others' arguments
converted. A program that names what is not here does not compile so, and is built with the header.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from polydevice_gpu.cl.programs.needed import needed

OPTION = "-D_OPENCL_H_"
"""Says that the header, LLVM's opencl-c.h, was read already; types and constants are elsewhere."""

_WIDTHS = ("", "2", "3", "4", "8", "16")
_INTEGERS = ("char", "uchar", "short", "ushort", "int", "uint", "long", "ulong")
_FLOATS = {"float": "int", "double": "long", "half": "short"}
"""Floats, and the integers of their size, which comparisons of vectors give."""
_EXTENSIONS = {"double": "cl_khr_fp64", "half": "cl_khr_fp16"}
_SPACES = ("__global", "__local", "__private")

# T is any integer, F any float, N a float in single precision, of any width; t, f: one of those.
# U, S: the unsigned or signed integer of T's or F's size; I: int; of the same width.
# B: int for one, S for a vector.
_OVERLOADED = """
acos acosh asin asinh atan atanh cbrt ceil cos cosh erf erfc exp exp10 exp2 expm1 fabs: F(F)
floor log log10 log1p log2 rint round rsqrt sign sin sinh sqrt tan tanh trunc: F(F)
native_cos native_exp native_exp2 native_log native_log2 native_recip native_rsqrt: N(N)
native_sin native_sqrt: N(N)
atan2 copysign fdim fmod hypot pow remainder: F(F,F)
fma mad: F(F,F,F)
fmax fmin: F(F,F) F(F,f)
isfinite isinf isnan isnormal signbit: B(F)
ilogb: I(F)
ldexp: F(F,I) F(F,int)
mix: F(F,F,F) F(F,F,f)
abs: U(T)
clz popcount: T(T)
add_sat mul_hi rotate sub_sat: T(T,T)
max min: F(F,F) F(F,f) T(T,T) T(T,t)
clamp: F(F,F,F) F(F,f,f) T(T,T,T) T(T,t,t)
select: F(F,F,S) F(F,F,U) T(T,T,S) T(T,T,U)
"""
_SIGNATURES = {
    name: signatures.split()
    for line in _OVERLOADED.strip().splitlines()
    for names, _, signatures in [line.partition(":")]
    for name in names.split()
}

_PLACES = "global_id global_offset global_size group_id local_id local_size num_groups"
_SINGLE = {
    **{f"get_{place}": (f"size_t get_{place}(uint)", "const") for place in _PLACES.split()},
    "get_work_dim": ("uint get_work_dim(void)", "const"),
    "barrier": ("void barrier(cl_mem_fence_flags)", "convergent"),
    "mem_fence": ("void mem_fence(cl_mem_fence_flags)", ""),
}
"""Functions that have one form, and what the compiler may take for granted of them."""

_PASTED = {
    "convert_": [f"convert_{kind}{n}" for kind in ("float", "half", "int") for n in _WIDTHS],
    "vload": [f"vload{n}" for n in _WIDTHS[1:]],
    "vstore": [f"vstore{n}" for n in _WIDTHS[1:]],
}
"""What kernels' macros put together with a type or a width."""

_WORD = re.compile(r"[a-z]\w+")
_CONVERSION = re.compile(rf"convert_({'|'.join((*_INTEGERS, *_FLOATS))})(2|3|4|8|16|)(_\w+)?")
_VECTOR = re.compile(r"(vload|vstore)(2|3|4|8|16)")
_HALF = re.compile(r"(vloada?|vstorea?)_half(2|3|4|8|16|)(_rt[ezpn])?")
_ATOMIC = re.compile(r"atomic_(inc|dec|add|sub|or|and|xor|min|max|cmpxchg)")


def declared(source: str) -> str:
    """Return what of a source is `needed`, and declares the built-in functions it names.

    It is to be built with `OPTION`.
    """
    text = needed(source)
    named = {*_WORD.findall(text)}
    named.update(*(whole for part, whole in _PASTED.items() if part in named))
    return "\n".join([*filter(None, map(declarations, sorted(named))), text])


@functools.cache
def declarations(name: str) -> str:
    """Return the declarations of a built-in function, a line each; "" for any other name."""
    if name in _SINGLE:
        return _line(*_SINGLE[name])
    if name in _SIGNATURES:
        lines = [line for each in _SIGNATURES[name] for line in _overloads(name, each)]
    elif found := _CONVERSION.fullmatch(name):
        lines = [*_conversions(name, found[1], found[2])]
    elif (found := _VECTOR.fullmatch(name)) or (found := _HALF.fullmatch(name)):
        lines = [*_accesses(name, found[1], found[2])]
    elif found := _ATOMIC.fullmatch(name):
        lines = [*_atomics(name, {"inc": 0, "dec": 0, "cmpxchg": 2}.get(found[1], 1))]
    else:
        return ""
    return "\n".join(lines)


def _overloads(name: str, signature: str) -> Iterator[str]:
    """Write a function for every type and width that its signature stands for."""
    floats = tuple(_FLOATS) if "F" in signature else ("float",)
    result, _, given = signature.removesuffix(")").partition("(")
    for scalar in _INTEGERS if "T" in signature else floats:
        signed = _FLOATS.get(scalar, scalar.removeprefix("u"))
        for width in _WIDTHS:
            types = {
                **dict.fromkeys("TFN", scalar + width),
                **dict.fromkeys("tf", scalar),
                "S": signed + width,
                "U": f"u{signed}{width}",
                "I": f"int{width}",
                "B": signed + width if width else "int",
            }
            arguments = [types.get(each, each) for each in given.split(",")]
            if width or not {"t", "f", "int"} & {*given.split(",")}:  # of one: there already
                text = f"{types[result]} {name}({', '.join(arguments)})"
                yield _where_known(_line(text, "const"), scalar)


def _conversions(name: str, kind: str, width: str) -> Iterator[str]:
    for given in (*_INTEGERS, *_FLOATS):
        text = f"{kind}{width} {name}({given}{width})"
        yield _where_known(_line(text, "const"), kind, given)


def _accesses(name: str, what: str, width: str) -> Iterator[str]:
    """Write loads or stores in each address space."""
    loads, of_half = what.startswith("vload"), "_half" in name
    for kind in (*_INTEGERS, *_FLOATS):
        if of_half and kind not in (("float",) if loads else ("float", "double")):
            continue
        element = "half" if of_half else kind
        if loads:
            for space in ("__constant", *_SPACES):
                text = f"{kind}{width} {name}(size_t, const {space} {element}*)"
                yield _where_known(_line(text, "pure"), kind)
        else:
            for space in _SPACES:
                text = f"void {name}({kind}{width}, size_t, {space} {element}*)"
                yield _where_known(_line(text, ""), kind)


def _atomics(name: str, operands: int) -> Iterator[str]:
    for kind in ("int", "uint"):
        for space in _SPACES[:2]:
            given = ", ".join([f"volatile {space} {kind}*", *[kind] * operands])
            yield _line(f"{kind} {name}({given})", "")


def _line(text: str, known: str) -> str:
    return f"{text} __attribute__(({', '.join(filter(None, ('overloadable', known)))}));"


def _where_known(line: str, *types: str) -> str:
    """Leave a declaration out on devices that lack one of its types."""
    needed = sorted({_EXTENSIONS[each] for each in types if each in _EXTENSIONS})
    return "\n".join([*(f"#ifdef {each}" for each in needed), line, *["#endif"] * len(needed)])
