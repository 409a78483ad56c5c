"""Whether a primitive for a part of a result computes as the one for all of it would."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from polydevice_cpu.onednn.attributes import Quantisation
from polydevice_cpu.onednn.constants import Arg, DataType
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.primitive import Primitive, SymbolicPrimitive
from polydevice_cpu.proof.claim import NotedClaim
from polydevice_cpu.proof.proof import refusal

BYTES = 4
"""So many times as many products of bytes are computed in the same time."""

_TYPES = DataType.S8, DataType.U8


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
