"""Inputs of shapes and types that no rule foresaw: every operation works or refuses by name.

Each input of a case becomes a scalar, empty, longer along an axis, of another rank or of another
type, and constants become inputs, so that sizes and axes come late. Whatever that makes, the answer
is a result or an error of ours that names the layer; a defect's report is neither.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest

from polydevice import Core
from polydevice.errors import BlobError, InternalError, PolydeviceError

from .case import Case, Input, ir_of
from .cases import CASES

PARTS = 24
FIRSTS = list({(case.kind, case.opset): case for case in reversed(CASES)}.values())


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


def mutants(case: Case) -> Iterator[Case]:
    for place, item in enumerate(case.inputs):
        for value in misfits(item.value):
            inputs = list(case.inputs)
            kind = item.kind if value.dtype == item.value.dtype else ""
            inputs[place] = Input(value, kind=kind)
            yield dataclasses.replace(case, inputs=tuple(inputs))


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(n, marks=pytest.mark.full) for n in range(1, PARTS))]
)
def test_misfits_are_refused_by_name(part: int) -> None:
    wrong, tried = [], 0
    with Core() as core:
        for case in FIRSTS[part::PARTS]:
            for number, mutant in enumerate(mutants(case)):
                tried += 1
                title = f"{case.id} {number} {[i.value.shape for i in mutant.inputs]}"
                try:
                    network = core.read_network(*ir_of(mutant, dynamic=number % 2 == 0))
                    with core.load_network(network, "CPU") as executable:
                        executable.infer(mutant.feeds)
                except BlobError:
                    continue
                except InternalError as error:
                    wrong.append(f"{title}: {error}"[:300])
                except PolydeviceError as error:
                    if "'op" not in str(error):
                        wrong.append(f"{title} lacks the layer: {error}"[:300])
    assert tried > 50
    assert not wrong, "\n".join(wrong)
