"""Whether a claim may be relied on: what is known about its class, or a trial."""

from __future__ import annotations

import logging

from polydevice_cpu.onednn.attributes import Attributes, Eltwise
from polydevice_cpu.onednn.constants import Algorithm
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.primitives import eltwise
from polydevice_cpu.proof.claim import Claim, Link
from polydevice_cpu.proof.ledger import ledger
from polydevice_cpu.proof.trial import ACCURACY_ELEMENTS, failure

log = logging.getLogger("polydevice.cpu")

_TRIVIAL = (Algorithm.LINEAR, Algorithm.RELU, Algorithm.CLIP, Algorithm.ABS, Algorithm.ROUND)


def refusal(claim: Claim) -> str:
    """Return why the primitive must not be used; empty where it is proved."""
    for link in claim.links:
        if isinstance(link.post_op, Eltwise):
            reason = inaccuracy(link.post_op)
            if reason:
                return reason
    return _verdict(claim.key, claim)


def inaccuracy(function: Eltwise) -> str:
    """Return why oneDNN's code for a function is not good enough; empty where it is."""
    if function.algorithm in _TRIVIAL:
        return ""
    book = ledger()
    key = f"{function.algorithm.name}({function.alpha:.6g},{function.beta:.6g}) alone"
    known = book.verdict(key)
    if known is not None:
        return known
    vector = Descriptor.dense((ACCURACY_ELEMENTS,))
    made = eltwise(function.algorithm, vector, vector, function.alpha, function.beta, Attributes())
    if made is None:
        return "oneDNN does not have it"
    return _verdict(key, Claim(made, None, [Link(function)]))


def _verdict(key: str, claim: Claim) -> str:
    book = ledger()
    known = book.verdict(key)
    if known is not None:
        return known
    try:
        reason = failure(claim)
    except MemoryError:
        return "there is no memory to try it"  # not remembered: there may be some later
    book.note(key, reason)
    if reason:
        log.warning("oneDNN is not used for [%s]: %s", key, reason)
    return reason
