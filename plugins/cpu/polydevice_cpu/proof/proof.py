"""Whether a claim may be relied on: what is known about its class, or a trial."""

from __future__ import annotations

import logging
import math
from functools import lru_cache
from typing import Any

from polydevice.bounds import current_bounds
from polydevice.errors import DeviceMemoryError
from polydevice.symbolic_trace import current_trace
from polydevice_cpu.onednn.attributes import Attributes, Eltwise, Sum
from polydevice_cpu.onednn.constants import Algorithm
from polydevice_cpu.onednn.descriptor import Descriptor, number_descriptor, numbers
from polydevice_cpu.onednn.primitive import Primitive, SymbolicPrimitive
from polydevice_cpu.onednn.primitives import eltwise
from polydevice_cpu.proof.claim import SHAPES, Claim, Link, NotedClaim
from polydevice_cpu.proof.ledger import ledger
from polydevice_cpu.proof.trial import (
    ACCURACY_ELEMENTS,
    SCRATCHPAD_MARGINS_BYTES,
    failure,
    margin_bytes,
)

log = logging.getLogger("polydevice.cpu")

COPIES = 16
"""A trial holds source, result and operands, each laid out, plain, and once more for the base."""
_TRIVIAL = (Algorithm.LINEAR, Algorithm.RELU, Algorithm.CLIP, Algorithm.ABS, Algorithm.ROUND)


def refusal(claim: Claim) -> str:
    """Return why the primitive must not be used; empty where it is proved."""
    if isinstance(claim.primitive, SymbolicPrimitive):
        return _noted(claim, claim.primitive)
    for link in claim.links:
        if isinstance(link.post_op, Eltwise):
            reason = inaccuracy(link.post_op)
            if reason:
                return reason
    reason = _fault(claim) or _verdict(claim.key, claim)
    claim.primitive.is_proved = not reason
    return reason


def _fault(claim: Claim) -> str:
    """Return why even a trial would end the process; empty where it would not.

    oneDNN takes this code for a few depthwise convolutions, as of gaps and wide pads.
    """
    if claim.primitive.implementation != "jit_dw:sse41":
        return ""
    sums = any(isinstance(link.post_op, Sum) for link in claim.links)
    return "it faults where what it adds to does not lie at multiples of 16 bytes" if sums else ""


def _noted(claim: Claim, made: SymbolicPrimitive) -> str:
    """Why it must not be used for the sizes there are now; what is claimed is noted for others."""
    base = None if claim.base is None else claim.base()
    trace = current_trace()
    named: tuple[Any, ...] = () if trace is None else tuple(trace.named_in(claim.window))
    noted = NotedClaim(base, tuple(claim.links), claim.zero, claim.window, named)
    shapes = [numbers(each) for each in (*(link.shape for link in claim.links), named)]
    reason = refusal(noted.of(made.witness, shapes, number_descriptor, _witness_of))
    if not reason:
        made.claims.append(noted)
    return reason


def _witness_of(primitive: Primitive) -> Primitive:
    return primitive.witness if isinstance(primitive, SymbolicPrimitive) else primitive


def inaccuracy(function: Eltwise) -> str:
    """Return why oneDNN's code for a function is not good enough; empty where it is."""
    if function.algorithm in _TRIVIAL:
        return ""
    book = ledger()
    key = _alone(function.algorithm, function.alpha, function.beta)
    known = book.verdict(key)
    if known is not None:
        return known
    vector = Descriptor.dense((ACCURACY_ELEMENTS,))
    made = eltwise(function.algorithm, vector, vector, function.alpha, function.beta, Attributes())
    if made is None:
        return "oneDNN does not have it"
    return _verdict(key, Claim(made, None, [Link(function)]))


@lru_cache(maxsize=SHAPES)
def _alone(algorithm: Algorithm, alpha: float, beta: float) -> str:
    return f"{algorithm.name}({alpha:.6g},{beta:.6g}) alone"


def _verdict(key: str, claim: Claim) -> str:
    book = ledger()
    known = book.verdict(key)
    if known is not None:
        return known
    # Neither is remembered: smaller tensors of the class will be tried, or there is memory later.
    try:
        current_bounds().admit(_trial_bytes(claim.primitive), f"trying oneDNN's code for [{key}]")
        reason = failure(claim)
    except DeviceMemoryError as error:
        log.info("oneDNN is not used for [%s]: %s", key, error)
        return "its tensors are too large to try it"
    except MemoryError:
        return "there is no memory to try it"
    book.note(key, reason)
    if reason:
        log.info("oneDNN is not used for [%s]: %s", key, reason)
    return reason


def _trial_bytes(made: Primitive) -> int:
    """What a trial holds at once, at most."""
    size = COPIES * max(made.src.size_bytes, made.dst.size_bytes)
    if made.has_weights:  # laid out for the primitive and for the base, and plain in f32
        size += 2 * made.weights.size_bytes + 4 * math.prod(made.weights.shape)
    if room := made.scratchpad_bytes:
        size += room + 2 * margin_bytes(room, SCRATCHPAD_MARGINS_BYTES)
    return size
