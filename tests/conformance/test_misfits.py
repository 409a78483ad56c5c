"""Inputs of shapes and types that no rule foresaw: every operation works or refuses by name.

Inputs of a case become scalars, empty, longer along an axis, of another rank or of another type,
one at a time and all at once, and constants become inputs, so that sizes and axes come late.
Whatever that makes, the answer is a result or an error of ours that names the layer; a defect's
report is neither. What is refused where sizes are known is also refused where they come late.
"""

from __future__ import annotations

import dataclasses
import re
import zlib
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pytest

from polydevice import Core
from polydevice.errors import BlobError, InternalError, PolydeviceError

from .case import Case, Input, ir_of, late_ir_of
from .cases import CASES

PARTS = 24
SOME = 12
"""Of so many misfits one is tried where each costs more than a few milliseconds."""
FIRSTS = list({(case.kind, case.opset): case for case in reversed(CASES)}.values())
parts = pytest.mark.parametrize(
    "part", [0, *(pytest.param(n, marks=pytest.mark.full) for n in range(1, PARTS))]
)


def misfits(value: np.ndarray) -> Iterator[np.ndarray]:
    """Yield arrays that differ from one that fits."""
    yield value[None]
    if value.size:
        yield value.reshape(-1)[:1].reshape(())
    for axis in range(value.ndim):
        yield np.concatenate([value, value], axis)
        yield value[(*[slice(None)] * axis, slice(0, 0))]
    for dtype in (np.float16, np.uint64, np.bool_):
        if value.dtype not in (dtype, object):
            with np.errstate(all="ignore"):
                yield value.astype(dtype)


ALL_AT_ONCE: tuple[Callable[[np.ndarray], np.ndarray], ...] = (
    lambda value: value.reshape(-1)[:1].reshape(()) if value.size else value,
    lambda value: value[:0] if value.ndim else value,
    lambda value: value[None],
)


def mutants(case: Case) -> Iterator[Case]:
    for place, item in enumerate(case.inputs):
        for value in misfits(item.value):
            inputs = list(case.inputs)
            kind = item.kind if value.dtype == item.value.dtype else ""
            inputs[place] = Input(value, kind=kind)
            yield dataclasses.replace(case, inputs=tuple(inputs))
    for change in ALL_AT_ONCE:
        changed = tuple(Input(change(item.value), kind=item.kind) for item in case.inputs)
        yield dataclasses.replace(case, inputs=changed)


def some_mutants(case: Case) -> list[Case]:
    return list(mutants(case))[zlib.crc32(case.id.encode()) % SOME :: SOME]


def refusal(
    core: Core, device: str, model: tuple[bytes, bytes], feeds: Mapping[str, object]
) -> str:
    """Return how a device refuses, "" where it answers; what no error should say begins with !."""
    try:
        with core.load_network(core.read_network(*model), device) as executable:
            executable.infer(feeds)
    except BlobError as error:
        return f"BlobError: {error}"
    except InternalError as error:
        return f"! {error}"
    except PolydeviceError as error:
        named = re.search(r"\bop\b", str(error))
        return f"{'' if named else '! lacks the layer: '}{type(error).__name__}: {error}"
    return ""


@pytest.mark.usefixtures("repeated_sparingly")
@parts
def test_misfits_are_refused_by_name(device: str, part: int) -> None:
    wrong, tried = [], 0
    with Core() as core:
        for case in FIRSTS[part::PARTS]:
            for number, mutant in enumerate(
                mutants(case) if device == "CPU" else some_mutants(case)
            ):
                tried += 1
                model = ir_of(mutant, dynamic=number % 2 == 0)
                said = refusal(core, device, model, mutant.feeds)
                if said.startswith("!"):
                    shapes = [i.value.shape for i in mutant.inputs]
                    wrong.append(f"{case.id} {number} {shapes}: {said}"[:300])
    assert tried >= 10
    assert not wrong, "\n".join(wrong)


@parts
def test_sizes_that_come_late_are_checked_as_known_ones(part: int) -> None:
    wrong, tried = [], 0
    with Core() as core:
        for case in FIRSTS[part::PARTS]:
            for mutant in some_mutants(case):
                tried += 1
                fed = tuple(Input(item.value, kind=item.kind) for item in mutant.inputs)
                mutant = dataclasses.replace(mutant, inputs=fed)
                topology, feeds = late_ir_of(mutant)
                said = refusal(core, "CPU", (topology, b""), feeds)
                known = "" if said else refusal(core, "CPU", ir_of(mutant), mutant.feeds)
                if said.startswith("!") or known:
                    shapes = [item.value.shape for item in fed]
                    wrong.append(f"{case.id} {shapes}: {said or 'passes late'}; {known}"[:300])
    assert tried >= 10
    assert not wrong, "\n".join(wrong)
