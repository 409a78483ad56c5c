"""A core with two devices that make trouble, and a network whose answers are easily told."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from polydevice import Core
from tests.auto.shaky import TROUBLES, Trouble
from tests.cpu.models import build


@pytest.fixture
def troubles() -> Iterator[dict[str, Trouble]]:
    TROUBLES.update(SHAKY=Trouble(), SHAKY2=Trouble())
    yield TROUBLES
    TROUBLES.clear()


@pytest.fixture
def core(troubles: dict[str, Trouble]) -> Iterator[Core]:
    with Core() as made:
        made.register_plugin("tests.auto.shaky", "SHAKY")
        made.register_plugin("tests.auto.shaky", "SHAKY2")
        yield made


@pytest.fixture
def network(core: Core):
    """y = |3 x|, of 5 numbers."""
    nodes = [("Mul", ["x", "three"], ["a"], {}), ("Abs", ["a"], ["y"], {})]
    return core.read_network(build(nodes, {"x": (5,)}, ("y",), {"three": np.array([3], "f4")}))


def right(x: np.ndarray) -> np.ndarray:
    return np.abs(np.float32(3) * x)
