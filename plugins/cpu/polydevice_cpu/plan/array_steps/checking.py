"""Whether a node takes arrays of sizes that only the data told, and memory for what it makes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polydevice.dtype import Array
from polydevice.errors import InferCancelledError, InferTimeoutError, PolydeviceError, ShapeError
from polydevice.node import Node
from polydevice.shape import Shape
from polydevice.symbolic_formulas import Formulas
from polydevice.symbolic_size import UntraceableError
from polydevice.symbolic_trace import tracing
from polydevice.tensor import TensorDesc
from polydevice_cpu.plan.array_steps.growth import KEPT, Growth, Sizes, is_small, short_ones

CLASSES = 4
"""Classes of sizes of a node, for each of which it was inferred with sizes as symbols."""


class Check:
    """Whether a node takes arrays of these sizes, and memory for what it makes of them.

    Nobody could tell before, and NumPy would repeat what has one item where the operation has no
    rule for it. Inferring takes 10 to 30 µs, so what was found of sizes is kept, and a node that
    gets other ones again and again is inferred once with sizes as symbols: what that asked of them
    takes others 1 µs. What only values break shows when they are computed, and is named then.

    Attributes:
        sized: numbers of the inputs that are no constants, whose sizes may differ.
        taken: sizes of these that it takes, if nothing is to be asked about such arrays any more.
    """

    __slots__ = (
        "_classes",
        "_found",
        "_growth",
        "_has_sizes",
        "_node",
        "_op",
        "_tried",
        "sized",
        "taken",
    )

    def __init__(self, node: Node) -> None:
        """Begin with nothing found."""
        self._node = node
        self._op = node.op
        self._growth = Growth(node.op)
        self._has_sizes = all(port.desc.kind == "tensor" for port in node.inputs)
        self.sized = [k for k, port in enumerate(node.inputs) if port.desc.constant is None]
        self.taken: set[Sizes] = set()
        self._found: dict[Sizes, tuple[int, ...]] = {}  # numbers of inputs that are short ones
        self._classes: dict[tuple[int, ...], list[Formulas]] = {}
        self._tried = 0

    def __call__(self, inputs: Sequence[Array]) -> None:
        """Check the sizes alone.

        Raises:
            ShapeError: they are none that the operation takes.
            DeviceMemoryError: the result is more than the network may use.
        """
        key = tuple([inputs[number].shape for number in self.sized])
        short = self._found.get(key)
        if short is None:
            sizes = tuple([array.shape for array in inputs])
            if self._has_sizes and not self._is_taken(sizes):  # sequences have none
                self._infer(sizes, [None] * len(sizes))
                if self._found:
                    self._learn(sizes)
            if len(self._found) >= KEPT:
                self._found.clear()
                self.taken.clear()
            self._found[key] = short = short_ones(inputs, self.sized)
            if is_small(self._op, inputs):
                self.taken.add(key)
                return
        elif key in self.taken:
            return
        self._growth.admit(inputs, key, short)

    def values(self, inputs: Sequence[Array]) -> None:
        """Check the values too; raises ShapeError."""
        if self._has_sizes:
            self._infer([array.shape for array in inputs], inputs)

    def _is_taken(self, sizes: Sizes) -> bool:
        """Whether it is known to take sizes like these."""
        if not self._classes:
            return False
        known = self._classes.get(tuple(map(len, sizes)), ())
        numbers = [size for each in sizes for size in each]
        return any(formulas(numbers) is not None for formulas in known)

    def _learn(self, sizes: Sizes) -> None:
        """Note what the operation asks of sizes that it takes."""
        if self._tried >= CLASSES:
            return
        self._tried += 1
        try:
            with tracing() as trace:
                symbols: list[Any] = [tuple(map(trace.input, each)) for each in sizes]
                self._infer(symbols, [None] * len(sizes))
                found = trace.formulas([])
        except UntraceableError:  # whatever the sizes are
            self._tried = CLASSES
        except (InferCancelledError, InferTimeoutError):
            raise
        except (PolydeviceError, TypeError):  # with numbers it is right
            return
        else:
            self._classes.setdefault(tuple(map(len, sizes)), []).append(found)

    def _infer(self, sizes: Sequence[tuple[int, ...]], values: Sequence[Array | None]) -> None:
        node = self._node
        described = [
            TensorDesc(port.element_type, Shape(each), value)
            for port, each, value in zip(node.inputs, sizes, values, strict=True)
        ]
        try:
            node.op.check_inputs(described)
            node.op.infer(described)
        except PolydeviceError as error:
            raise ShapeError(f"{node.title}: {error}") from None
