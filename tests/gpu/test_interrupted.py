"""Ctrl-C while a plan is made for the GPU device: the next inferences are right, and none waits."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from polydevice import Core
from tests.cpu.models import build
from tests.interruption import Interruption

LOCKS = r"runtime/weights\.py:|queues/launch\.py:enqueue$", ("c_return",), 2
"""Of constants and launches; those of Python's own classes are taken two calls further down."""

TURNS = r"queues/turn_lock\.py:", ("call", "c_return"), 0


@pytest.mark.parametrize("watched", [LOCKS, TURNS], ids=["locks", "turns"])
def test_other_threads_plan_and_infer_wherever_one_was_interrupted(watched) -> None:
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
                with Interruption(number, *watched):
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
        assert number > 5
