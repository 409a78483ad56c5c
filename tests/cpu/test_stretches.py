"""Primitives that follow each other are one call, which still knows each of them."""

from __future__ import annotations

import ctypes
import itertools

import numpy as np
import pytest

from polydevice.errors import InferenceError
from polydevice.processor.machine_code import CALL, Calls, calls
from polydevice_cpu.onednn.library import library
from polydevice_cpu.onednn.primitive import Execution
from polydevice_cpu.plan.binding import stretches as module
from polydevice_cpu.plan.binding.stretches import STRETCH, Together, stretches
from tests.cpu import models
from tests.cpu.loading import image, load

pytestmark = pytest.mark.skipif(library() is None, reason="oneDNN is not there")


def chain(length: int) -> bytes:
    """Products that are primitives, and in their middle a sum along an axis by NumPy."""
    names = ["x", *(f"a{number}" for number in range(length)), "y"]
    nodes = [
        ("CumSum", [a, "axis"], [b], {}) if 2 * n == length else ("MatMul", [a, "w"], [b], {})
        for n, (a, b) in enumerate(itertools.pairwise(names))
    ]
    weights = {"w": image(1, 64, 64) / 24, "axis": np.int64(0)}
    return models.build(nodes, {"x": [48, 64]}, ["y"], weights)


@pytest.mark.parametrize("loops", [True, False], ids=["together", "one by one"])
@pytest.mark.parametrize("length", [4, 7, 3 * STRETCH])
def test_answers_and_failures(core, monkeypatch, length, loops) -> None:
    if not loops:
        monkeypatch.setattr(module, "calls", lambda _: None)
    model = chain(length)
    request = load(core, model).create_infer_request()
    feed = {"x": image(2, 48, 64)}
    expected = models.answer(model, feed)[0]
    for _ in range(3):
        np.testing.assert_allclose(request.infer(feed)["y"], expected, rtol=1e-4, atol=1e-5)
    bound = request.runner.bound
    parts = [call for stretch in bound._stretches for call in stretch]
    assert any(isinstance(call, Together) for call in parts) is loops
    at = length  # the last one
    step = bound._order[at]
    good = step.call
    assert isinstance(good, Execution)
    primitive, stream, _, packed = good.args
    bad = Execution(good.func, primitive, stream, 0, packed)  # lacks its arguments
    bound._order[at] = step._replace(call=bad)
    bound._stretches = None
    with pytest.raises(InferenceError, match=bound.plan.steps[at].name):
        request.infer(feed)
    bound._order[at] = step
    bound._stretches = None
    np.testing.assert_allclose(request.infer(feed)["y"], expected, rtol=1e-4, atol=1e-5)


def test_every_call_is_kept_in_order() -> None:
    others = [lambda: 0 for _ in range(2 * STRETCH + 3)]
    assert [call for each in stretches(others) for call in each] == others


def listed(*statuses: int) -> tuple[Calls, list[int]]:
    """Calls that return these statuses one after the other, and which of them ran."""
    ran: list[int] = []
    kind = ctypes.CFUNCTYPE(ctypes.c_int)

    def function(status: int) -> object:
        return kind(lambda: ran.append(status) or status)

    functions = [function(status) for status in statuses]
    addresses = [ctypes.cast(each, ctypes.c_void_p).value for each in functions]
    made = calls(np.array([(address, 0, 0, 0, 0) for address in addresses], CALL))
    if made is None:
        pytest.skip("no machine code on this system")
    made.functions = functions
    return made, ran


def test_lists_of_calls_are_calls_of_a_list() -> None:
    (first, ran), (second, last) = listed(0, 0), listed(0, 7, 0)
    ((one,),) = stretches([first, second, first])
    assert isinstance(one, Together)
    result = one()
    assert (ran, last) == ([0, 0], [0, 7])
    assert one.failed(result) == (second, 7, [first])
    ((good,),) = stretches([first, first])
    assert good() == 0
    assert ran == [0] * 6
