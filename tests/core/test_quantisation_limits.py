"""Quantisation said by limits: a FakeQuantize and a Convert are a QuantizeLinear again."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.emitter import Emitter
from polydevice.node import Node, Port
from polydevice.ops.convert import Convert
from polydevice.ops.io import Parameter
from polydevice.ops.quantize import FakeQuantize
from polydevice.rewrites.integers.limits import (
    SCALE_NOTE,
    Quantisation,
    by_limits,
    said_by_limits,
)
from polydevice.shape import Shape

X = Node("x", Parameter(ElementType.f32, Shape([3]))).output


def _written(said: Quantisation) -> Node:
    return by_limits(Emitter("q"), Node("old", Parameter(ElementType.f32)), X, said).node


def _read(low: float, high: float, ends: tuple[int, int], kind: str = "u8", levels: int = 256):
    limits = [np.float32(number) for number in (low, high, *ends)]
    build = Emitter("q")
    made: Port = build.emit(FakeQuantize(levels=levels), X, *limits)
    return said_by_limits(build.emit(Convert(destination_type=ElementType(kind)), made).node)


@pytest.mark.parametrize("kind", ["u8", "i8"])
def test_every_scale_comes_back(kind, rng):
    """To the last bit with its note; without it some scale that has the same limits."""
    ends = np.iinfo(ElementType(kind).dtype)
    others = 0
    for _ in range(300):
        scale = float(np.float32(2.0 ** rng.uniform(-30, 20)))
        said = Quantisation(scale, int(rng.integers(ends.min, ends.max + 1)), ElementType(kind))
        node = _written(said)
        assert said_by_limits(node) == (X, said)
        del node.inputs[0].node.rt_info[SCALE_NOTE]
        found = said_by_limits(node)
        assert found is not None
        assert found[1].limits == said.limits
        assert found[1].zero == said.zero
        np.testing.assert_allclose(found[1].scale, scale, rtol=2.0**-22)
        others += found[1].scale != scale
    assert others  # or there is no need for a note


def test_limits_worked_out_by_hand():
    found = _read(-1.5, 126.0, (0, 255))
    assert found == (X, Quantisation(0.5, 3, ElementType.u8))
    assert _read(-2.5, 1.25, (0, 15), levels=16) is None
    found = _read(-32.0, 31.75, (-128, 127), "i8")
    assert found == (X, Quantisation(0.25, 0, ElementType.i8))


@pytest.mark.parametrize(
    ("low", "high", "ends", "kind"),
    [
        (-1.5, 126.0, (0, 254), "u8"),  # a level that is no integer
        (-1.5, 126.0, (0, 255), "i8"),
        (-1.5, 126.0, (-128, 127), "u8"),
        (-1.25, 126.25, (0, 255), "u8"),  # 0 lies between two levels
        (1.0, 256.0, (0, 255), "u8"),  # and outside
        (126.0, -1.5, (0, 255), "u8"),
        (0.0, np.inf, (0, 255), "u8"),
        (0.0, 1e-45, (0, 255), "u8"),  # no scale in f32
    ],
)
def test_other_limits_stay(low, high, ends, kind):
    assert _read(low, high, ends, kind) is None


def test_a_note_that_is_wrong_is_not_believed():
    node = _written(Quantisation(0.5, 3, ElementType.u8))
    for value in ("0.51", "nan", "-1", "1e99", "a lot"):
        node.inputs[0].node.rt_info[SCALE_NOTE] = {"value": value}
        assert said_by_limits(node) == (X, Quantisation(0.5, 3, ElementType.u8))
    node.inputs[0].node.rt_info[SCALE_NOTE] = "0.5"
    assert said_by_limits(node) == (X, Quantisation(0.5, 3, ElementType.u8))
