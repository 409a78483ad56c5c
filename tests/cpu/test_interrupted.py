"""Ctrl-C in the midst of an inference: the next one on the same request is right."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice import Core, StatusCode
from tests.interruption import Interruption

from .models import build

WATCHED = r"(polydevice_cpu/runner|binding/bound|runtime/plan_cache|bounds)\.py:(?!__)"


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
                with Interruption(number, WATCHED, ("call", "return")):
                    request.infer({"x": x})
                was = False
            except KeyboardInterrupt:
                pass
            right = np.cumsum(x @ w, axis=0)
            assert np.array_equal(request.infer({"x": x})["y"], right), number
        assert number > 5


def test_requests_run_behind_whatever_call_one_was_interrupted() -> None:
    """Nothing may raise between taking a lock and its `try`, in Python's own modules neither."""
    data = build([("Relu", ["x"], ["y"], {})], {"x": (2,)}, ("y",), {})
    x = np.array([-1, 2], "f4")
    watched = r"(infer_request|request_memory|executor|executable_network|locks)\.py:"

    def use(request):
        request.infer({"x": x})
        request.set_blob("x", x.copy())
        request.start_async()
        request.wait()

    with Core() as core:
        network = core.load_network(core.read_network(data), "CPU")
        use(network.create_infer_request())
        number, was = 0, True
        while was:
            number += 1
            request = network.create_infer_request()
            try:
                with Interruption(number, watched, ("c_return",), below=2):
                    use(request)
                was = False
            except KeyboardInterrupt:
                pass
            request.wait(10_000)
            assert np.array_equal(request.infer({"x": x})["y"], [0, 2]), number
            other = network.create_infer_request()
            other.start_async({"x": x})
            assert other.wait(10_000) is StatusCode.OK, number
            assert np.array_equal(other.get_blob("y").array, [0, 2]), number
        assert number > 30
