"""ShapedGraph: a graph whose inputs can be given other shapes, which all nodes follow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from polydevice.arguments import options, shown
from polydevice.bounds import computing_ahead
from polydevice.errors import NetworkError, PolydeviceError, ShapeError, nearest
from polydevice.network.graph import Graph
from polydevice.network.written_batch import follow
from polydevice.node import Node, Port
from polydevice.ops.io import Constant, Parameter
from polydevice.shape import DimLike, Shape
from polydevice.tensor import TensorDesc


class ShapedGraph(Graph):
    """A graph whose shapes follow those of its inputs."""

    def infer(self) -> None:
        """Find type and shape of every port again, producers first."""
        with computing_ahead():
            for node in self.nodes():
                if not _is_described(node):
                    node.infer(self.evaluate)

    def infer_results(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return type and shape of every result for inputs so described; changes nothing.

        Inputs whose elements are known act as constants. This is how an operation with a body
        (TensorIterator, Loop, If) describes its outputs.

        Raises:
            NetworkError: (or a subclass) a node does not accept what reaches it.
        """
        trial = self.clone()
        for node, desc in zip(trial.parameters, inputs, strict=True):
            if desc.constant is not None and desc.kind == "tensor":
                node.op = Constant(desc.constant, desc.element_type)
            else:
                node.op = Parameter(desc.element_type, desc.shape, desc.kind)
        trial.infer()
        return [result.outputs[0].desc for result in trial.results]

    @property
    def is_dynamic(self) -> bool:
        """Whether some input's shape is not fully known."""
        return any(not node.output.desc.is_static for node in self.parameters)

    def reshape(self, shapes: Mapping[str, Sequence[DimLike | None]]) -> None:
        """Give inputs new shapes; None or -1 is an unknown size, `Dim` one with bounds.

        Inputs are called by their names, or by one that the framework gave their tensor.

        Where the model has its batch written into the pattern of a Reshape, and that does not fit
        the new shapes, the Reshape follows (`polydevice.network.written_batch`).

        Raises:
            NetworkError: for an unknown input name, or when a node does not accept the shapes;
                the network then keeps its old shapes.
        """
        shapes = options(shapes, "the mapping of names to shapes", NetworkError)
        sizes_of = self._by_input(shapes)
        before = {node: node.op for node in sizes_of}
        known = {port: port.shape for node in self.nodes() for port in node.outputs}
        try:
            for node, sizes in sizes_of.items():
                node.op = node.op.replace(shape=_shape(node.name, sizes))
            self._infer_or_follow(known)
        except PolydeviceError:
            for node, op in before.items():
                node.op = op
            self.infer()
            raise

    def _by_input(
        self, shapes: Mapping[str, Sequence[DimLike | None]]
    ) -> dict[Node, Sequence[DimLike | None]]:
        """Return shapes by the input that they are for."""
        by_name = {name: node for node in self.parameters for name in node.output.names}
        by_name.update({node.name: node for node in self.parameters})
        found: dict[Node, Sequence[DimLike | None]] = {}
        for name, sizes in shapes.items():
            node = by_name.get(name)
            if node is None:
                names = [each.name for each in self.parameters]
                raise NetworkError(
                    f"network {self.name!r} has no input {name!r}; inputs: {', '.join(names)}."
                    + nearest(name, by_name)
                )
            if node in found:
                raise NetworkError(f"{name!r} is a second name of input {node.name!r}, given twice")
            found[node] = sizes
        return found

    def _infer_or_follow(self, before: Mapping[Port, Shape | None]) -> None:
        """Find shapes; where they do not fit as the model is written, with Reshapes that follow.

        Raises:
            NetworkError: what is wrong with the model as it is written.
        """
        try:
            self.infer()
        except NetworkError as error:
            try:
                changed = follow(self, before)
            except NetworkError:
                raise error from None
            if not changed:
                raise

    @property
    def batch_size(self) -> DimLike:
        """First size of the inputs (0 without inputs); setting it reshapes all of them."""
        for node in self.parameters:
            shape = node.output.shape
            if shape is not None and len(shape) > 1:
                return shape[0]
        return 1 if self.parameters else 0

    @batch_size.setter
    def batch_size(self, size: int) -> None:
        if size <= 0:
            raise ShapeError(f"batch size {size} is not possible; use 1 or more")
        current = self.batch_size
        shapes: dict[str, list[DimLike]] = {}
        for node in self.parameters:
            shape = node.output.shape
            if shape is None:
                raise ShapeError(f"{node.title} has unknown rank; use reshape() instead")
            if len(shape) > 1 and shape[0] == current:
                shapes[node.name] = [size, *shape[1:]]
        self.reshape(shapes)


def _is_described(node: Node) -> bool:
    """Whether a node is a constant, as every second one is, whose port says so already."""
    if not isinstance(node.op, Constant) or not node.outputs:
        return False
    desc = node.outputs[0].desc
    return desc.value is node.op.value and desc.element_type is node.op.element_type


def _shape(name: str, sizes: Any) -> Shape:
    if not isinstance(sizes, Iterable) or isinstance(sizes, (str, bytes)):
        raise ShapeError(f"input {name!r}: {shown(sizes)} is no shape; give a list of sizes")
    return Shape(sizes)
