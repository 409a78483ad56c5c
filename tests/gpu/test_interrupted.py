"""Ctrl-C while a plan is made for the GPU device: the next inferences are right, and none waits."""

from __future__ import annotations

import threading

import numpy as np

from polydevice import Core
from tests.cpu.models import build
from tests.interruption import Interruption

WATCHED = r"runtime/weights\.py:|queues/launch\.py:enqueue$"
"""What takes locks that other inferences take, which might stay locked behind any call."""

BELOW = 2
"""The locks of Python's own futures and conditions are taken so many calls further down."""


def test_other_threads_plan_and_infer_wherever_one_was_interrupted() -> None:
    """In another thread, as locks may let the interrupted one in once more."""
    w = np.linspace(-1, 1, 12, dtype="f4").reshape(3, 4)
    nodes = [("MatMul", ["x", "w"], ["a"], {}), ("Softmax", ["a"], ["y"], {"axis": 0})]
    data = build(nodes, {"x": ("n", 3)}, ("y",), {"w": w})
    with Core() as core:
        read = core.read_network(data)
        number, was = 0, True
        while was:
            number += 1
            network = core.load_network(read, "GPU")
            x = np.full((3, 3), number, "f4")
            try:
                with Interruption(number, WATCHED, ("c_return",), BELOW):
                    network.infer({"x": x})
                was = False
            except KeyboardInterrupt:
                pass
            request = network.create_infer_request()
            answers: list[np.ndarray] = []

            def infer(request=request, x=x, answers=answers) -> None:
                answers.append(request.infer({"x": x})["y"])

            other = threading.Thread(target=infer, daemon=True)
            other.start()
            other.join(timeout=60)
            assert answers, number
            np.testing.assert_allclose(answers[0], np.full((3, 4), 1 / 3), rtol=1e-5)
        assert number > 10
