"""Ctrl-C in the midst of an inference: the next one on the same request is right."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import numpy as np
import pytest

from polydevice import Core

from .models import build

WATCHED = ("polydevice_cpu/runner.py", "binding/bound.py", "runtime/plan_cache.py", "bounds.py")


class Interruption:
    """Raises KeyboardInterrupt as the n-th function in a few modules begins or ends."""

    def __init__(self, number: int) -> None:
        self.left = number

    def __enter__(self) -> None:
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        name = frame.f_code.co_filename.replace("\\", "/")
        if (
            event in ("call", "return")
            and name.endswith(WATCHED)
            and "__" not in frame.f_code.co_name
        ):
            self.left -= 1
            if not self.left:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self._trace


@pytest.mark.parametrize(
    "grows", [False, pytest.param(True, marks=pytest.mark.full)], ids=["same shape", "new shapes"]
)
def test_the_next_inference_is_right_wherever_it_was(grows) -> None:
    """Both where only memory moves and where a plan is made; whose lock would be held for ever."""
    nodes = [
        ("MatMul", ["x", "w"], ["a"], {}),
        ("Relu", ["a"], ["b"], {}),
        ("CumSum", ["b", "i"], ["y"], {}),
    ]
    w = np.arange(12, dtype="f4").reshape(3, 4)
    data = build(nodes, {"x": ("n", 3)}, ("y",), {"w": w, "i": np.array(0, "i8")})
    with Core() as core:
        request = core.load_network(core.read_network(data), "CPU").create_infer_request()
        number, was = 0, True
        while was:
            number += 1
            request.infer({"x": np.ones((3, 3), "f4")})
            x = np.full((3 + number * grows, 3), number, "f4")
            try:
                with Interruption(number):
                    request.infer({"x": x})
                was = False
            except KeyboardInterrupt:
                pass
            right = np.cumsum(x @ w, axis=0)
            assert np.array_equal(request.infer({"x": x})["y"], right), number
        assert number > 5
