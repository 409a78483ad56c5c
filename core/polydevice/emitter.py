"""Emitter: makes operations, with their names, shapes and constants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Union

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.node import Evaluate, Node, Port
from polydevice.ops.convert import Convert
from polydevice.ops.io import Constant
from polydevice.ops.op import Op
from polydevice.ops.reshape import Reshape
from polydevice.ops.slice import Slice
from polydevice.ops.split import Split, VariadicSplit
from polydevice.ops.transpose import Transpose
from polydevice.shape import are_same
from polydevice.symbolic_size import array_of, is_formula

Input = Union[Port, Array, int, float, bool, "list[int]", "tuple[int, ...]"]
"""An input of an emitted operation; numbers become constants.

Integers become i64; a float gets the type of the first input of floating point, f64 without one.
"""


class Emitter:
    """Makes the nodes that a reader or a rewrite puts in the place of something.

    A node belongs to a network as soon as something there reads it; what nobody reads is forgotten.

    Attributes:
        name: what the nodes are called until `name_nodes` tells them apart.
        evaluate: computes small values ahead whose inputs are known; None for none.
        origins: names of the model's layers that the nodes compute; see `Node.origins`.
        emitted: the nodes in the order in which they were made.
    """

    def __init__(
        self, name: str, *, evaluate: Evaluate | None = None, origins: Iterable[str] = ()
    ) -> None:
        self.name = name
        self.evaluate = evaluate
        self.origins = tuple(origins)
        self.emitted: list[Node] = []

    def emit(self, op: Op, *inputs: Input, name: str = "") -> Port:
        """Add an operation and return its first output; raises NetworkError as `Node` does."""
        return self.emit_all(op, *inputs, name=name)[0]

    def emit_all(self, op: Op, *inputs: Input, name: str = "") -> list[Port]:
        """Add an operation and return all its outputs; raises NetworkError as `Node` does."""
        ports = [self.value(item, _type_of(item, inputs)) for item in inputs]
        node = Node(name or self.name, op, ports)
        node.origins = self.origins
        if self.evaluate is not None and ports and all(p.desc.value is not None for p in ports):
            node.infer(self.evaluate)
        self.emitted.append(node)
        return node.outputs

    def replacement(self, old: Node, op: Op, *inputs: Input) -> Port:
        """Add what takes the place of a node, with its name and notes; return its first output."""
        made = self.emit(op, *inputs, name=old.name)
        made.node.rt_info = dict(old.rt_info)
        return made

    def value(
        self, item: Input, element_type: ElementType | None = None, *, name: str = ""
    ) -> Port:
        """Return a port as it is; make a constant of anything else."""
        if isinstance(item, Port):
            return item
        array = np.asarray(item)
        if element_type is None and isinstance(item, (int, list, tuple)):
            element_type = ElementType.i64 if array.dtype != np.bool_ else None
        if is_formula(array) and (element_type is None or element_type.is_integer):
            element_type = element_type or ElementType.i64
        elif element_type is not None and array.dtype != element_type.dtype:
            array = array.astype(element_type.dtype)
        op = Constant(array, element_type or ElementType.of(array.dtype))
        node = Node(name or self.name, op)
        self.emitted.append(node)
        return node.output

    def like(self, item: object, port: Port) -> Port:
        """Make a constant of the element type of `port`."""
        return self.value(np.asarray(item), port.element_type)

    def name_nodes(
        self,
        outputs: Sequence[Port | None],
        unique: Callable[[str], str],
        old: Node | None = None,
    ) -> None:
        """Name what was emitted: the node of the first output as a whole, others behind a slash.

        Args:
            outputs: what was made in the end.
            unique: returns a name that no other node has, from one that some may have.
            old: the node in whose place all this comes; the first inherits its name and notes.
        """
        made = set(self.emitted)
        ports = [port.node for port in outputs if port is not None]
        first = next((node for node in ports if old is None or node in made), None)
        for node in self.emitted:
            if node is first and old is not None:
                node.rt_info = dict(old.rt_info)
            elif node.name == self.name:
                node.name = unique(self.name if node is first else f"{self.name}/{node.type}")

    # -- what is emitted again and again ------------------------------------------------------

    def convert(self, x: Port, element_type: ElementType) -> Port:
        """Convert to an element type; `x` itself where it is of that type."""
        if x.element_type is element_type:
            return x
        return self.emit(Convert(destination_type=element_type), x)

    def reshape(self, x: Port, shape: Sequence[int]) -> Port:
        """Show a value in another shape, in which one size may be -1; `x` where it has it."""
        if x.shape is not None and are_same(tuple(x.shape), shape):
            return x
        if x.node.constant is not None:
            return self.value(x.node.constant.reshape(shape), x.element_type)
        return self.emit(Reshape(special_zero=False), x, array_of(shape, np.int64))

    def transpose(self, x: Port, order: Sequence[int]) -> Port:
        """Show a value with its axes in another order; `x` itself where that is its own."""
        if list(order) == sorted(order):
            return x
        return self.emit(Transpose(), x, np.asarray(order, np.int64))

    def cut(self, x: Port, axis: int, start: int, stop: int, step: int = 1) -> Port:
        """Show a range of one axis."""
        return self.emit(Slice(), x, [start], [stop], [step], [axis])

    def split(self, x: Port, axis: int, sizes: Sequence[int]) -> list[Port]:
        """Cut a value along an axis into parts of these sizes; a constant's are constants."""
        if len(sizes) == 1:
            return [x]
        if x.node.constant is not None:
            parts = np.split(x.node.constant, np.cumsum(sizes)[:-1], axis)
            return [self.value(np.ascontiguousarray(part), x.element_type) for part in parts]
        if len(set(sizes)) == 1:
            return self.emit_all(Split(num_splits=len(sizes)), x, axis)
        return self.emit_all(VariadicSplit(), x, axis, list(sizes))


def _type_of(item: Input, inputs: Sequence[Input]) -> ElementType | None:
    """Return the type of a float among inputs; None for all else, which tells its own."""
    if type(item) is not float:
        return None
    kinds = (port.element_type for port in inputs if isinstance(port, Port))
    return next((kind for kind in kinds if kind.is_float), None)
