"""OpenVINO's answer to a case."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tests.openvino_answers import openvino_answers

from .case import Case, ir_of


def oracle(given: Case) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]]:
    """Return the function that answers a case for any inputs (constants are the case's).

    It raises LookupError for inputs that OpenVINO refuses.
    """
    topology, weights = ir_of(given)
    varying = [i for i, item in enumerate(given.inputs) if not item.constant]

    def answers(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        asked = [np.asarray(inputs[i]) for i in varying]
        try:
            return openvino_answers(topology, weights, asked, reference=given.reference)
        except RuntimeError as error:
            raise LookupError(f"OpenVINO refuses {given.id}: {error}") from error

    return answers
