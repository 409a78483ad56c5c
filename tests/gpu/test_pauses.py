"""What computes in the background lets inferences go first, though not for ever."""

from __future__ import annotations

import time

import pytest

from polydevice.errors import InferCancelledError
from polydevice_gpu.compiler.new_shapes import pauses
from polydevice_gpu.compiler.new_shapes.pauses import Pauses


def test_it_waits_for_the_end_of_an_inference(monkeypatch) -> None:
    monkeypatch.setattr(pauses, "MOST_SECONDS", 60)
    answers = iter([True, True, False])
    pause = Pauses(lambda: None, lambda: next(answers))
    pause()
    assert next(answers), "nothing is asked where little time has passed"
    time.sleep(2 * pauses.EVERY_SECONDS)
    pause()
    assert next(answers, None) is None, "until no inference is under way"


def test_it_goes_on_beside_inferences_without_end() -> None:
    asked = []
    pause = Pauses(lambda: None, lambda: bool(asked.append(1) or True))
    time.sleep(2 * pauses.EVERY_SECONDS)
    pause()
    assert asked


def test_it_ends_where_nobody_waits() -> None:
    def check() -> None:
        raise InferCancelledError("closed")

    pause = Pauses(check, lambda: False)
    time.sleep(2 * pauses.EVERY_SECONDS)
    with pytest.raises(InferCancelledError):
        pause()
