"""Parts of a result: where they begin, and whether primitives for them compute as one for all."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from functools import lru_cache

from polydevice_cpu.onednn.attributes import Quantisation
from polydevice_cpu.onednn.constants import Arg, DataType
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.primitive import Primitive, SymbolicPrimitive
from polydevice_cpu.proof.claim import NotedClaim
from polydevice_cpu.proof.proof import refusal

LEAST = 16
"""Positions of the shortest strips that may overlap, but where there are fewer in all."""

REPEATED = 32
"""Of so many positions one may be computed twice, where that spares shorter strips."""

BYTES = 4
"""So many times as many products of bytes are computed in the same time."""

_TYPES = DataType.S8, DataType.U8


@lru_cache(maxsize=4096)
def pieces(
    positions: int, least: int = LEAST, *, may_repeat: bool = True, twice: int = 0, most: int = 0
) -> tuple[tuple[int, int], ...]:
    """Return (start, length) of the strips of so many positions; none where there are too few.

    They get shorter, by powers of two; the last one may overlap the one before.

    Args:
        positions: how many.
        least: of the shortest.
        may_repeat: whether they may overlap.
        twice: so many positions may be computed twice in any case.
        most: of the longest, a power of two; 0 for as long as possible.
    """
    length = 1 << (positions.bit_length() - 1)
    length = min(length, most) if most else length
    if length < least or (positions % least and not may_repeat):
        return ()
    found, start = [], 0
    while start < positions:
        rest = positions - start
        if rest >= length:
            found.append((start, length))
            start += length
        elif may_repeat and (
            length == least or (length - rest) * REPEATED <= positions or length - rest <= twice
        ):
            found.append((positions - length, length))
            break
        else:
            length >>= 1
    return tuple(found)


def is_alike(made: Primitive, given: SymbolicPrimitive) -> bool:
    """Whether it has the code that was expected.

    Of products of bytes, whose sums are exact, it may multiply with other instructions: for few
    positions oneDNN takes AVX-512 instead of AMX, with the same functions behind.
    """
    one, other = made.implementation, given.implementation
    if one == other:
        return True
    return is_exact(given) and one.split(":")[0] == other.split(":")[0]


def is_exact(given: SymbolicPrimitive) -> bool:
    """Whether it multiplies bytes, whose sums are exact."""
    return given.has_weights and given.src.data_type in _TYPES


def is_one_for_all(each: Quantisation) -> bool:
    """Whether scale and zero point are the same at all positions."""
    return each.argument == Arg.WEIGHTS or not (each.scale_mask or each.zero_point_mask)


def is_right(
    made: Primitive,
    given: SymbolicPrimitive,
    relied_on: Container[int],
    shapes: Callable[[NotedClaim], Sequence[tuple[int, ...]]],
    layout: Callable[[Descriptor], Descriptor],
    base: Callable[[Primitive], Primitive],
) -> bool:
    """Whether it has the code that was expected, and what is fused is proved.

    Args:
        made: computes a part.
        given: what it is a part of.
        relied_on: identities of layouts that values have or are brought into.
        shapes: returns the sizes of a claim's operands, as far as the part reads them.
        layout: returns a layout of the part.
        base: returns the part of what a claim compares it with.
    """
    if not is_alike(made, given):
        return False
    for place, answer in given.answers.items():
        if id(answer) in relied_on and made.descriptor(*place).layout != answer.layout:
            return False
    return not any(refusal(each.of(made, shapes(each), layout, base)) for each in given.claims)
