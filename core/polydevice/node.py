"""Node and Port: one operation in a network, and its outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from polydevice.bounds import compute_ahead
from polydevice.dtype import Array, ElementType
from polydevice.errors import NetworkError, PolydeviceError, ShapeError
from polydevice.interval import Interval, IntLike
from polydevice.ops.comparison import Comparison
from polydevice.ops.io import Constant
from polydevice.ops.op import Op
from polydevice.shape import MAX_RANK, Shape
from polydevice.symbolic_size import is_symbolic
from polydevice.tensor import TensorDesc

O = TypeVar("O", bound=Op)  # noqa: E741 - an operation

Kind = type[O]
"""A class of operations; `Node.type` is something else."""

Evaluate = Callable[[Op, Sequence[Array]], "list[Array] | None"]
"""Computes an operation on arrays; None where it cannot. Core gets it from the hook `evaluate`."""

FLOAT_REASON = "computed in floating point"
"""Key of a node's notes: why a quantised layer is not computed on integers."""

STEPS_REASON = "attention in steps"
"""The same: why an attention that a model has as one operator is products around a softmax."""

ACCURACY_LEVEL = "accuracy_level"
"""Key of a product's notes: `EIGHT_BITS` lets a device round what it multiplies with constants to 8
bits, each block of a row with a factor of its own, as ONNX Runtime's MatMulNBits has it."""

EIGHT_BITS = "4"
"""A text, as files keep notes."""

VALUE_LIMIT = 1 << 16
"""Largest number of elements that shape inference computes ahead; shapes are far smaller."""

FLOATS_LIMIT = 1 << 10
"""The same of real numbers, which are scales and steps at most, and of what is made of numbers of
8 bits or less, which sizes are not: more are weights, computed for nothing. That was 8 MB of an IR
file's 6 MB of 8-bit weights, and 51 MB of a MobileBERT's 7 MB that was quantised at run time."""

_NARROW = frozenset(kind for kind in ElementType if kind.is_integer and kind.bits <= 8)
_LARGEST_ITEM = 8
"""Bytes of an i64, which is what shapes consist of."""

_SPAN_LIMIT = 1 << 62
"""NumPy has no arrays, not even empty ones, whose sizes multiply to more."""


class Port:
    """One output of a node, and what is known of the value that leaves it."""

    __slots__ = ("desc", "index", "names", "node")

    def __init__(self, node: Node, index: int, desc: TensorDesc) -> None:
        self.node = node
        self.index = index
        self.desc = desc
        self.names: set[str] = set()
        """The framework's names of this tensor."""

    @property
    def element_type(self) -> ElementType:
        """Type of the elements."""
        return self.desc.element_type

    @property
    def shape(self) -> Shape | None:
        """Sizes, None when the rank is unknown."""
        return self.desc.shape

    @property
    def name(self) -> str:
        """Name of the node, with ``.index`` when the node has several outputs."""
        return self.node.name if len(self.node.outputs) == 1 else f"{self.node.name}.{self.index}"

    def __repr__(self) -> str:
        return f"{self.name}: {self.desc}"


class Node:
    """One use of an operation in a network.

    Attributes:
        name: unique in its network.
        op: what it computes, with its attributes.
        inputs: the ports that feed it, in the operation's order.
        outputs: its own ports; descriptors are filled by shape inference.
        rt_info: notes for the runtime, kept in IR v11 files ("affinity" places the node).
        origins: names of the model's layers that it computes, where a rewrite has made it; empty
            for a layer of the model itself.
    """

    __slots__ = ("inputs", "name", "op", "origins", "outputs", "rt_info")

    def __init__(
        self,
        name: str,
        op: Op,
        inputs: Iterable[Port] = (),
        *,
        rt_info: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.op = op
        self.inputs = list(inputs)
        self.outputs: list[Port] = []
        self.rt_info: dict[str, Any] = dict(rt_info or {})
        self.origins: tuple[str, ...] = ()
        self.infer()

    def copy(self, inputs: Iterable[Port]) -> Node:
        """Return a node like this one that reads other ports of the same types and shapes.

        Nothing is inferred: operation, notes and what is known of the outputs stay as they are.
        """
        made = Node.__new__(Node)
        made.name, made.op, made.origins = self.name, self.op, self.origins
        made.inputs = list(inputs)
        made.rt_info = dict(self.rt_info)
        made.outputs = [Port(made, port.index, port.desc) for port in self.outputs]
        for old, new in zip(self.outputs, made.outputs, strict=True):
            new.names = set(old.names)
        return made

    def infer(self, evaluate: Evaluate | None = None) -> None:
        """Find type and shape of every output from the inputs'.

        Raises:
            NetworkError: (or its subclass) naming node, type, opset and reason.
        """
        described = [port.desc for port in self.inputs]
        try:
            self.op.check_inputs(described)
            results = self.op.infer(described)
        except PolydeviceError as error:
            raise type(error)(f"{self.title}: {error}") from error
        except (IndexError, ValueError, TypeError, ZeroDivisionError, OverflowError) as error:
            given = ", ".join(str(desc) for desc in described)
            raise NetworkError(
                f"{self.title} does not accept the inputs ({given}): {error}"
            ) from error
        for result in results:
            if result.rank is not None and result.rank > MAX_RANK:
                raise ShapeError(
                    f"{self.title} makes a value of rank {result.rank}; at most {MAX_RANK} can be"
                )
        if evaluate is not None:
            results = self._with_values(described, results, evaluate)
        self._set_outputs(results)

    def _with_values(
        self, given: Sequence[TensorDesc], results: list[TensorDesc], evaluate: Evaluate
    ) -> list[TensorDesc]:
        """Compute small outputs ahead when every input is known (shape arithmetic).

        Outputs without elements are known whatever the inputs are: nothing computes them.
        """
        if not (self.op.is_stateful or self.op.has_side_effect or self.op.has_bodies):
            results = [known_if_empty(result) for result in results]
        if not given:
            return results
        for desc in given:  # any() takes four times as long, and hardly ever goes on
            if desc.value is None:
                return results
        if any(r.value is not None or r.kind != "tensor" for r in results):
            return results
        if any(r.shape is not None and any(map(is_symbolic, r.shape)) for r in results):
            return results  # its elements serve one size only
        limit = _limit(given, results)
        if any((r.span_bytes or 0) > limit * _LARGEST_ITEM for r in results):
            return results
        partial = any(
            d.value is not None
            and d.value.dtype == object
            and d.element_type is not ElementType.string
            for d in given
        )
        if partial and not _follows_sizes(self.op, given):
            return results
        arrays = [d.value for d in given if d.value is not None]
        values = compute_ahead(lambda: evaluate(self.op, arrays))
        if values is None or any(v.size > limit for v in values):
            return results
        return [
            TensorDesc(r.element_type, Shape(v.shape), _held(v, r.element_type) if partial else v)
            for r, v in zip(results, values, strict=True)
        ]

    def _set_outputs(self, results: Sequence[TensorDesc]) -> None:
        if not self.outputs:
            self.outputs = [Port(self, i, desc) for i, desc in enumerate(results)]
            return
        if len(results) != len(self.outputs):
            raise ShapeError(
                f"{self.title} now has {len(results)} outputs instead of {len(self.outputs)}"
            )
        for port, desc in zip(self.outputs, results, strict=True):
            port.desc = desc

    @property
    def type(self) -> str:
        """The operation's type name."""
        return self.op.type

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the model's layers that it computes: `origins`, or its own name."""
        return self.origins or (self.name,)

    def operation(self, kind: Kind[O]) -> O:
        """Return the operation, which is one of this kind.

        Raises:
            TypeError: it is another one; who asks is registered for its own.
        """
        op = self.op
        if not isinstance(op, kind):
            raise TypeError(f"{self.title} is no {kind.__name__}")
        return op

    @property
    def title(self) -> str:
        """Name, type and opset: how messages call the node."""
        return f"node {self.name!r} ({self.op.type}, {self.op.opset})"

    @property
    def output(self) -> Port:
        """The only output; raises NetworkError when there are several."""
        if len(self.outputs) != 1:
            raise NetworkError(f"{self.title} has {len(self.outputs)} outputs; choose one by index")
        return self.outputs[0]

    @property
    def constant(self) -> Array | None:
        """The value of a Constant node, None for every other node."""
        return self.op.value if isinstance(self.op, Constant) else None

    def __repr__(self) -> str:
        outputs = ", ".join(str(port.desc) for port in self.outputs)
        inputs = ", ".join(port.name for port in self.inputs)
        return f"{self.name} = {self.op.type}({inputs}) -> {outputs}"


def _follows_sizes(op: Op, given: Sequence[TensorDesc]) -> bool:
    """Whether an operation can be computed on sizes; comparing unknown ones says nothing."""
    return op.shape_arithmetic or (
        isinstance(op, Comparison) and all(desc.constant is not None for desc in given)
    )


def _limit(given: Sequence[TensorDesc], results: Sequence[TensorDesc]) -> int:
    """How many elements of a result are computed ahead."""
    for desc in results:
        if desc.element_type.is_float:
            return FLOATS_LIMIT
    for desc in given:
        if desc.element_type in _NARROW:
            return FLOATS_LIMIT
    return VALUE_LIMIT


def _held(value: Array, element_type: ElementType) -> Array | None:
    """Return what was computed from unknown sizes as an element type holds it.

    Integers that do not fit wrap around. The array is of plain type when every element is known
    after all; None says that the type has no unknown elements.
    """
    items = value.astype(object).reshape(-1)
    if element_type.is_integer and element_type.dtype.kind in "iu":
        items[:] = [_wrapped(item, np.iinfo(element_type.dtype)) for item in items]
    elif element_type.is_float:
        items[:] = [_rounded(item, element_type) for item in items]
    elif any(isinstance(item, Interval) for item in items) and not element_type.is_float:
        return None
    held = items.reshape(value.shape)
    known = not any(isinstance(item, Interval) or is_symbolic(item) for item in items)
    return held.astype(element_type.dtype) if known else held


def _wrapped(item: IntLike, info: np.iinfo[Any]) -> IntLike:
    low, high = info.min, info.max
    if isinstance(item, Interval):
        finite = [bound for bound in (item.min, item.max) if bound is not None]
        return item if all(low <= bound <= high for bound in finite) else Interval()
    if is_symbolic(item):
        return item if low <= item <= high else int(item)
    return (int(item) - low) % (high - low + 1) + low


def _rounded(item: Any, element_type: ElementType) -> Any:
    """Return a floating-point number of a symbolic size as f64 and f32 hold it.

    What is computed of two numbers of f32 in f64, and rounded, is what f32 gives.
    """
    if not is_symbolic(item):
        return item
    if element_type is ElementType.f64:
        return item * 1.0
    return item.single() if element_type is ElementType.f32 else item.known()


def known_if_empty(desc: TensorDesc) -> TensorDesc:
    """Return the description with its value when it has no elements."""
    if desc.shape is None or desc.value is not None or 0 not in desc.shape:
        return desc
    if any(map(is_symbolic, desc.shape)):
        return desc
    span = desc.span_bytes
    if span is None or span > _SPAN_LIMIT or desc.element_type is ElementType.dynamic:
        return desc
    return TensorDesc(desc.element_type, desc.shape, np.empty(desc.shape.static, desc.dtype))


def constant(name: str, value: Any, element_type: ElementType | None = None) -> Node:
    """Make a Constant node from anything NumPy can turn into an array."""
    array = np.asarray(value)
    if element_type is not None and array.dtype != element_type.dtype:
        array = array.astype(element_type.dtype)
    return Node(name, Constant(array, element_type or ElementType.of(array.dtype)))
