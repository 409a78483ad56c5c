"""Random operators: their numbers have the distribution asked for, and follow from the seed."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.onnx.models import model, run, value

SHAPE = (40, 500)
MIDDLE, WIDTH = 3.0, 0.5


def _drawn(op: str, device: str, seed: float) -> np.ndarray:
    """Numbers around MIDDLE, of deviation WIDTH."""
    if op.startswith("RandomNormal"):
        settings = {"mean": MIDDLE, "scale": WIDTH}
    else:
        reach = WIDTH * 3**0.5
        settings = {"low": MIDDLE - reach, "high": MIDDLE + reach}
    like = op.endswith("Like")
    if not like:
        settings |= {"shape": list(SHAPE), "dtype": TensorProto.FLOAT}
    node = helper.make_node(op, ["x"] if like else [], ["y"], seed=seed, **settings)
    inputs = [value("x", list(SHAPE))] if like else []
    given = [np.zeros(SHAPE, np.float32)] if like else []
    (y,) = run(model([node], inputs, [value("y", list(SHAPE))]), *given, device=device)
    return y


@pytest.mark.parametrize(
    "op", ["RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"]
)
def test_distribution_and_seed(op, device) -> None:
    y = _drawn(op, device, 1.0)
    # Twenty thousand numbers: the mean is within 5 of its own deviations, 0.0035.
    assert abs(y.mean() - MIDDLE) < 0.018
    assert abs(y.std() - WIDTH) < 0.018
    # Of a normal distribution 4.6 % lie beyond two deviations, of a uniform one none.
    beyond = (abs(y - MIDDLE) > 2 * WIDTH).mean()
    assert abs(beyond - (0.0455 if "Normal" in op else 0)) < 0.01
    # Neighbours tell nothing about each other.
    assert abs(np.corrcoef(y[:, :-1].ravel(), y[:, 1:].ravel())[0, 1]) < 0.04
    np.testing.assert_array_equal(_drawn(op, device, 1.0), y)
    assert (_drawn(op, device, 2.0) != y).mean() > 0.99
