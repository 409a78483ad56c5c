"""OnnxNode: what a translator sees of an ONNX node; it is the emitter of core operations too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from polydevice.emitter import Emitter
from polydevice.errors import ModelFormatError, UnsupportedOperationError
from polydevice.node import Port
from polydevice.readers.onnx.protos.messages import GraphProto, NodeProto
from polydevice.tensor import TensorDesc

if TYPE_CHECKING:
    from polydevice.readers.onnx.graph import GraphReader, ReadBody
    from polydevice.readers.onnx.protos.attributes import Subgraph
    from polydevice.readers.onnx.scope import Scope

T = TypeVar("T")


class OnnxNode(Emitter):
    """One ONNX node with resolved inputs and attributes.

    Attributes:
        op_type: the operator.
        domain: "" for ONNX's own operators.
        version: the opset version of its domain.
        name: the node's name, or that of its first output.
        inputs: a port per input, None where an optional input is left out; inputs at the end
            that are left out are not in the list.
        attributes: name → plain value, with ONNX's defaults filled in: int, float, str, lists of
            these, arrays for tensors, `Subgraph` for graphs.
        outputs: names of the outputs, "" where nobody wants the value.
        proto: the node as the model has it.
    """

    def __init__(
        self,
        reader: GraphReader,
        scope: Scope,
        *,
        op_type: str,
        domain: str,
        version: int,
        name: str,
        inputs: Sequence[Port | None],
        attributes: Mapping[str, Any],
        outputs: Sequence[str],
        proto: NodeProto,
    ) -> None:
        super().__init__(name, evaluate=reader.evaluate)
        self._reader = reader
        self._scope = scope
        self.op_type = op_type
        self.domain = domain
        self.version = version
        self.inputs = list(inputs)
        while self.inputs and self.inputs[-1] is None:
            self.inputs.pop()
        self.attributes = dict(attributes)
        self.outputs = list(outputs)
        self.proto = proto
        self._read: set[int] = set()

    @property
    def title(self) -> str:
        """How messages call the node."""
        domain = f"{self.domain}." if self.domain else ""
        return f"node {self.name!r} ({domain}{self.op_type}, opset {self.version})"

    def of_model(self, find: Callable[[GraphProto], T]) -> T:
        """Return what a function finds in the model's graph; it is asked once."""
        return self._reader.of_model(find)

    def take_dense(self, size_bytes: int) -> None:
        """Count what a table takes whose size a few numbers say; raises ModelLimitError."""
        self._reader.budget.take_dense(size_bytes)

    # -- reading ------------------------------------------------------------------------------

    def input(self, index: int) -> Port:
        """Return a required input; raises ModelFormatError when it is left out."""
        port = self.optional(index)
        if port is None:
            raise ModelFormatError(f"input {index} is missing; {len(self.inputs)} are given")
        return port

    def optional(self, index: int) -> Port | None:
        """Return an input, None when it is left out."""
        self._read.add(index)
        return self.inputs[index] if index < len(self.inputs) else None

    def required_inputs(self) -> list[Port]:
        """Return all inputs; raises ModelFormatError when one in the middle is left out."""
        return [self.input(index) for index in range(len(self.inputs))]

    def check_all_read(self) -> None:
        """Raise UnsupportedOperationError for inputs that are given and that nobody asked for."""
        for index, port in enumerate(self.inputs):
            if port is not None and index not in self._read:
                raise self.unsupported(f"input {index} ({port.name!r}) is not supported")

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute's value, `default` when neither model nor schema gives one."""
        return self.attributes.get(name, default)

    def required(self, name: str) -> Any:
        """Return a required attribute; raises ModelFormatError without it."""
        if name not in self.attributes:
            raise ModelFormatError(f"required attribute {name!r} is missing")
        return self.attributes[name]

    def wants(self, index: int) -> bool:
        """Whether the model uses the output at `index`."""
        return index < len(self.outputs) and bool(self.outputs[index])

    def rank(self, port: Port) -> int:
        """Return a port's rank; raises UnsupportedOperationError where only inference tells."""
        if port.desc.rank is None:
            raise self.unsupported(f"input {port.name!r} has no known rank")
        return port.desc.rank

    def unsupported(self, reason: str) -> UnsupportedOperationError:
        """Make the error for a form of the operator that is not supported."""
        return UnsupportedOperationError(f"{self.op_type}: {reason}")

    def definition(self) -> Sequence[Port | None]:
        """Translate the node by ONNX's own definition of the operator, a function."""
        return self._reader.expand_definition(self)

    def body(self, name: str, inputs: Sequence[TensorDesc] | None = None) -> ReadBody:
        """Read a graph attribute as a network of its own; see `GraphReader.body`."""
        graph: Subgraph = self.required(name)
        return self._reader.body(graph, inputs)

    def inline(self, name: str) -> list[Port]:
        """Read a graph attribute into the network around the node; return its outputs."""
        graph: Subgraph = self.required(name)
        return self._reader.inline(graph)
