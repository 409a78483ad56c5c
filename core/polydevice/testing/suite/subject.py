"""Subject: the device that a suite is about, with networks to run on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

from polydevice.core import Core
from polydevice.dtype import Array, ElementType
from polydevice.network import Network
from polydevice.node import Node, constant
from polydevice.ops.activation import Relu
from polydevice.ops.arithmetic import Add, Multiply
from polydevice.ops.control_flow import BackEdge, BodyInput, BodyOutput, Loop
from polydevice.ops.io import Parameter, Result
from polydevice.ops.op import Op, operation
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc

SHAPE = (2, 3, 5)
SCALE = np.array([[[2.0], [-1.0], [0.5]]], np.float32)
BIAS = np.array([[[0.25], [1.0], [-2.0]]], np.float32)


@operation("Unheard", domain="polydevice.testing")
class Unheard(Op):
    """An operation that no device has.

    Inputs:  x  any
    Outputs: y  shape and type of x
    Source:  this suite
    """

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return shape and type of x."""
        return [inputs[0].without_value()]


def random_input(seed: int) -> Array:
    """An input of the suite's network, other for each seed."""
    return np.random.default_rng(seed).normal(size=SHAPE).astype(np.float32)


class Subject:
    """A device, its networks and their answers. Subclasses set `device`."""

    device: ClassVar[str]
    """The device string, such as "NPU" or "NPU.0"."""
    config: ClassVar[dict[str, Any]] = {}
    """Configuration that every network is loaded with."""
    exact: ClassVar[bool] = False
    """Whether answers must match to the last bit; else to 1e-3 of the largest."""

    # -- what a subclass may override ---------------------------------------------------------

    def network(self) -> Network:
        """Return a network with one input ``x``, f32[2,3,5], and one output ``y``."""
        x = Node("x", Parameter(ElementType.f32, Shape(SHAPE)))
        scaled = Node("scaled", Multiply(), [x.output, constant("scale", SCALE).output])
        shifted = Node("shifted", Add(), [scaled.output, constant("bias", BIAS).output])
        y = Node("y", Relu(), [shifted.output])
        return Network("device-suite", [x], [Node("y/result", Result(), [y.output])])

    def answer(self, x: Array) -> Array:
        """Return what the network must answer, computed without the device."""
        return np.asarray(np.maximum(x * SCALE + BIAS, 0), np.float32)

    def repeating(self) -> Network:
        """Return a network whose output ``y`` is ``x`` + ``trips``, found one by one.

        With a negative number (i64) it never ends.
        """
        x = Node("x", Parameter(ElementType.f32, Shape(SHAPE)))
        trips = Node("trips", Parameter(ElementType.i64, Shape()))
        value = Node("value", Parameter(ElementType.f32, Shape(SHAPE)))
        more = Node("more", Add(), [value.output, constant("one", np.float32(1)).output])
        yes = constant("yes", np.array(True))
        body = Network(
            "body",
            [value],
            [Node("on", Result(), [yes.output]), Node("out", Result(), [more.output])],
        )
        ties = (BodyInput(2, 0),), (BodyOutput(0, 1),), (BackEdge(1, 0),)
        loop = Loop(body, *ties, execution_condition=0)
        first = constant("first", np.array(True))
        y = Node("y", loop, [trips.output, first.output, x.output])
        return Network("repeating", [x, trips], [Node("y/result", Result(), [y.output])])

    def register(self, core: Core) -> None:
        """Make the device known to `core`, when no entry point does."""

    # -- fixtures -----------------------------------------------------------------------------

    @pytest.fixture
    def core(self) -> Iterator[Core]:
        """A core that knows the device, closed afterwards."""
        with Core() as core:
            self.register(core)
            yield core

    def load(self, core: Core, **arguments: Any) -> Any:
        """Load the suite's network on the device."""
        return core.load_network(self.network(), self.device, self.config, **arguments)

    def check(self, got: Array, x: Array) -> None:
        """Compare an answer."""
        want = self.answer(x)
        assert got.shape == want.shape
        assert got.dtype == want.dtype
        if self.exact:
            np.testing.assert_array_equal(got, want)
        else:
            # A device may compute in f16, which has 11 bits.
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3 * np.abs(want).max())

    @property
    def family(self) -> str:
        """The device's name without its id."""
        return self.device.partition(":")[0].partition(".")[0]

    @property
    def is_composite(self) -> bool:
        """Whether the device string lists members."""
        return ":" in self.device
