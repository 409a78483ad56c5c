"""Builder: a network that grows node by node, every value known while it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.fuzz.evaluate import (
    RefusedError,
    Value,
    captured,
    ir_version,
    is_float,
    run_node,
    type_of,
)

Rng = np.random.Generator
Sizes = tuple[int, ...]
Maker = Callable[[Rng, Sizes], np.ndarray]

CHANNELS = (1, 2, 3, 4, 5, 12, 16, 17, 32, 64)
SIZES = (1, 1, 2, 2, 3, 4, 5, 7, 8)
FLOATS = (np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16),
          np.dtype(ml_dtypes.bfloat16))  # fmt: skip
INTS = tuple(map(np.dtype, ("i4", "i8", "i1", "u1", "i2", "u2", "u4", "u8")))
LARGEST = 40_000
"""Elements of one value; small models find as much, and more of them fit into a minute."""


class RejectedError(Exception):
    """This node cannot be made here; the network stays as it was."""


@dataclass(eq=False)
class Tensor:
    """A value of the network: its name, and what it is for the first data."""

    name: str
    value: Value
    constant: bool = False

    @property
    def shape(self) -> Sizes:
        return self.value.shape

    @property
    def rank(self) -> int:
        return self.value.ndim

    @property
    def dtype(self) -> np.dtype:
        return self.value.dtype


@dataclass
class Input:
    """An input of the network, with what makes new data for it and its declared sizes.

    A fixed one has the same value always: other nodes were made for it.
    """

    tensor: Tensor
    make: Maker
    sizes: list[int | str | None]
    fixed: bool = False


@dataclass
class Builder:
    """Adds nodes, evaluating each at once so that everything that follows fits.

    `attempts` counts per (domain, operator, opset) what was added; it is what coverage is
    accounted by.
    """

    rng: Rng
    opset: int
    inputs: list[Input] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: dict[str, np.ndarray] = field(default_factory=dict)
    tensors: list[Tensor] = field(default_factory=list)
    domains: dict[str, int] = field(default_factory=dict)
    prefix: str = ""
    outer: Builder | None = None
    _count: int = 0

    # -- chance -----------------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def choice(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def integer(self, low: int, high: int) -> int:
        """Return an integer from low to high, both included."""
        return int(self.rng.integers(low, high + 1))

    def size(self) -> int:
        return 0 if self.chance(0.02) else self.choice(SIZES)

    def shape(self, rank: int | None = None) -> Sizes:
        rank = self.choice((0, 1, 2, 2, 3, 3, 4, 4, 5)) if rank is None else rank
        return tuple(self.size() for _ in range(rank))

    def image(self, spatial: int = 2, least: int = 1) -> Sizes:
        """Return [N, C, spatial…] with channel counts that block layouts find odd."""
        most = self.choice((9, 9, 9, 24)) if spatial < 3 else 9
        sizes = tuple(self.integer(least, most) for _ in range(spatial))
        return (self.choice((1, 1, 2, 3)), self.choice(CHANNELS), *sizes)

    def float_type(self) -> np.dtype:
        return FLOATS[int(self.rng.choice(len(FLOATS), p=(0.8, 0.06, 0.09, 0.05)))]

    # -- values -----------------------------------------------------------------------------------

    def name(self) -> str:
        self._count += 1
        return f"{self.prefix}t{self._count}"

    def constant(self, value: Any, dtype: Any = None) -> Tensor:
        """Return a constant: an initializer, or now and then a Constant node."""
        array = np.asarray(value, dtype)
        tensor = Tensor(self.name(), array, constant=True)
        if self.chance(0.1) and array.dtype.kind != "O" and self.opset >= 9:
            proto = numpy_helper.from_array(array)
            self.nodes.append(helper.make_node("Constant", [], [tensor.name], value=proto))
        else:
            self.initializers[tensor.name] = array
        return tensor

    def input(self, shape: Sizes, make: Maker, array: np.ndarray | None = None) -> Tensor:
        """Return a new input of the network; inside a body, a constant of it."""
        value = make(self.rng, shape) if array is None else array
        if self.outer is not None:
            return self.constant(value)
        tensor = Tensor(f"x{len(self.inputs)}", value)
        self.inputs.append(Input(tensor, make, list(shape), fixed=array is not None))
        self.tensors.append(tensor)
        return tensor

    def fresh(self, shape: Sizes, make: Maker, constant: float = 0.25) -> Tensor:
        """Return new data: an input, or with this probability a constant."""
        if np.prod(shape, dtype=np.int64) > LARGEST:
            raise RejectedError("too many elements")
        if self.chance(constant):
            return self.constant(make(self.rng, shape))
        return self.input(shape, make)

    def find(self, *tests: Callable[[Tensor], bool]) -> Tensor | None:
        """Return one of the values that pass, later ones more often; or None."""
        fitting = [
            t for t in self.tensors if isinstance(t.value, np.ndarray) and all(f(t) for f in tests)
        ]
        if not fitting:
            return None
        weights = np.arange(1, len(fitting) + 1, dtype=float)
        return fitting[int(self.rng.choice(len(fitting), p=weights / weights.sum()))]

    # -- nodes ------------------------------------------------------------------------------------

    def add(
        self, operator: str, *inputs: Any, outputs: int | Sequence[bool] = 1, domain: str = "",
        **attributes: Any,
    ) -> Any:  # fmt: skip
        """Add a node; returns its output, or a list when it has several.

        Args:
            operator: type of the operator.
            inputs: values, None for one that is left out, or arrays, which become constants.
            outputs: how many, or for each whether it is asked for.
            domain: of the operator; its version must be in `domains` when it is not ONNX's.
            attributes: None leaves one out.

        Raises:
            RejectedError: other runtimes refuse it, or the result is not finite or too large.
        """
        wanted = [True] * outputs if isinstance(outputs, int) else list(outputs)
        attributes = {k: v for k, v in attributes.items() if v is not None}
        mark = self._mark()
        try:
            tensors = [self._operand(i) for i in inputs]
            names = [t.name if t else "" for t in tensors]
            while names and not names[-1]:
                names.pop()
            made = [self.name() if w else "" for w in wanted]
            node = helper.make_node(operator, names, made, domain=domain, **attributes)
            values = self.visible()
            values.update((t.name, t.value) for t in tensors if t)
            for name in captured(node):
                values.setdefault(name, None)
            results = run_node(node, values, self.opsets())
            for value in results:
                _check(value)
        except RefusedError as error:
            self._restore(mark)
            raise RejectedError(str(error)) from error
        except RejectedError:
            self._restore(mark)
            raise
        self.nodes.append(node)
        found = [Tensor(n, v) if n else None for n, v in zip(made, results)]
        self.tensors += [t for t in found if t]
        return found[0] if len(found) == 1 else found

    def _operand(self, value: Any) -> Tensor | None:
        if value is None or isinstance(value, Tensor):
            return value
        return self.constant(value)

    def _mark(self) -> tuple[int, set[str], int]:
        return len(self.nodes), set(self.initializers), self._count

    def _restore(self, mark: tuple[int, set[str], int]) -> None:
        del self.nodes[mark[0] :]
        self.initializers = {k: v for k, v in self.initializers.items() if k in mark[1]}

    def visible(self) -> dict[str, Value]:
        """Return name → value of all that a node here, or in a body of it, may use."""
        values = self.outer.visible() if self.outer else {}
        values.update((t.name, t.value) for t in self.tensors)
        return values

    def opsets(self) -> list[onnx.OperatorSetIdProto]:
        ours = [helper.make_opsetid("", self.opset)]
        return ours + [helper.make_opsetid(d, v) for d, v in self.domains.items()]

    def body(self) -> Builder:
        """Return a builder for a body of one of this network's nodes."""
        prefix = f"{self.name()}_"
        return Builder(self.rng, self.opset, domains=self.domains, prefix=prefix, outer=self)

    def graph(self, inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[Tensor],
              declared: bool = True) -> onnx.GraphProto:  # fmt: skip
        """Return the graph with these inputs and outputs; initializers that no one uses go."""
        used = {name for node in self.nodes for name in [*node.input, *captured(node)]}
        used |= {t.name for t in outputs}
        tensors = [
            numpy_helper.from_array(array, name)
            for name, array in self.initializers.items() if name in used
        ]  # fmt: skip
        infos = [
            helper.make_value_info(t.name, type_of(t.value, [None] * np.ndim(t.value)))
            for t in outputs
        ]
        if not declared:
            infos = [onnx.ValueInfoProto(name=t.name) for t in outputs]
        return helper.make_graph(self.nodes, "graph", inputs, infos, tensors)

    def model(self, outputs: Sequence[Tensor]) -> onnx.ModelProto:
        """Return the network with these outputs."""
        inputs = [
            helper.make_value_info(i.tensor.name, type_of(i.tensor.value, i.sizes))
            for i in self.inputs
        ]
        opsets = self.opsets()
        return helper.make_model(
            self.graph(inputs, outputs), opset_imports=opsets, ir_version=ir_version(opsets)
        )


def _check(value: Value) -> None:
    """Refuse what makes everything after it meaningless to compare."""
    for array in value if isinstance(value, list) else [value]:
        if array is None:
            raise RejectedError("an empty optional")
        if array.size > LARGEST:
            raise RejectedError("too many elements")
        if is_float(array.dtype) and array.size:
            wide = array.astype(np.float64)
            limit = 1e4 if array.dtype.itemsize == 2 else 1e6
            if not np.isfinite(wide).all() or np.abs(wide).max() > limit:
                raise RejectedError("not finite, or too large")
        elif array.dtype.kind in "iu" and array.size and np.abs(array.astype(float)).max() > 2**50:
            raise RejectedError("too large")
