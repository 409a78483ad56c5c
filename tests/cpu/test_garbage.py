"""Python's garbage collector while plans are made."""

from __future__ import annotations

import gc

import pytest

from polydevice_cpu.plan.garbage import collected_later
from tests.cpu.loading import image, load
from tests.cpu.test_strips import rows


def test_garbage_is_collected_behind_a_block():
    """By whoever lets it wait; who turned it off before finds it off."""
    assert gc.isenabled()
    with collected_later():
        assert not gc.isenabled()
        with collected_later():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(KeyError), collected_later():
        raise KeyError
    assert gc.isenabled()
    gc.disable()
    try:
        with collected_later():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_no_garbage_is_collected_while_a_plan_is_made(core, monkeypatch):
    executable = load(core, rows(24))
    request = executable.create_infer_request()
    found = []
    plan = executable.compiled.plan
    monkeypatch.setattr(
        executable.compiled, "plan", lambda shapes: (found.append(gc.isenabled()), plan(shapes))[1]
    )
    for number in range(4):
        request.infer({"x": image(number, 1, 5 + number, 24)})
        assert gc.isenabled()
    assert found == [False] * 4
    with pytest.raises(Exception, match="shape"):
        request.infer({"x": image(0, 1, 5, 23)})
    assert gc.isenabled()
