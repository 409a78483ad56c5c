"""GpuVariable: a variable of a request (ReadValue, Assign), kept on the device.

Plans have no variables: each is an input and an output of theirs. While a variable has its initial
value, which the network computes, another plan runs, without that input.
"""

from __future__ import annotations

from polydevice.dtype import Array
from polydevice.network import Network
from polydevice.node import Evaluate
from polydevice.passes.constant_folding import constant_folding
from polydevice.passes.lower_state import Variable, lower_state, zeros
from polydevice.runtime.variable import RequestVariable
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc
from polydevice_gpu.blobs.blob import GpuBlob
from polydevice_gpu.blobs.buffer_blob import BufferBlob
from polydevice_gpu.blobs.context import GpuContext
from polydevice_gpu.graph import Value


def known_starts(network: Network, evaluate: Evaluate) -> dict[str, Array | None]:
    """Return variable → its first value, None where the network computes it from inputs."""
    copy = network.clone()
    copy.evaluate = evaluate
    variables = lower_state(copy)
    constant_folding(copy, evaluate)
    results = {node.name: node.inputs[0] for node in copy.results}
    starts: dict[str, Array | None] = {}
    for variable in variables:
        starts[variable.name] = None
        if variable.start in results:
            starts[variable.name] = results[variable.start].node.constant
        elif (shape := variable.read.shape) is not None and shape.is_static:
            starts[variable.name] = zeros(variable)
    return starts


class GpuVariable(RequestVariable):
    """One variable of one request, in two blobs that take turns."""

    def __init__(self, variable: Variable, start: Array | None, context: GpuContext) -> None:
        """Start at the initial value; `start` is it where it is known before any inference."""
        super().__init__(variable.name, variable.read.desc)
        self.variable = variable
        self._start = start
        self._context = context
        self._held: Array | GpuBlob | None = None
        self._spare: GpuBlob | None = None

    @property
    def value(self) -> Array | GpuBlob | None:
        """What the next inference reads; None when its plan computes the first value."""
        return self._start if self._held is None else self._held

    def reset(self) -> None:
        """Let the initial value come next."""
        self._replace(None)

    def get(self) -> Array | None:
        """Return a copy of the value, from wherever it is."""
        value = self.value
        if not isinstance(value, GpuBlob):
            return None if value is None else value.copy()
        with value.map("r") as array:
            return array.astype(self.desc.element_type.dtype)

    def set(self, value: Array) -> None:
        """Keep an array; the next inference uploads it."""
        self._replace(value)

    def _replace(self, value: Array | None) -> None:
        """Put a value of the host's, or none, in place of the present one; keep its memory."""
        if self._spare is None and isinstance(self._held, GpuBlob):
            self._spare = self._held
        self._held = value

    def target(self, value: Value) -> GpuBlob:
        """Return memory for the next value, other than that of the present one."""
        spare = self._spare
        if spare is None or spare.shape != value.shape or spare.element_type != value.storage:
            desc = TensorDesc(value.storage, Shape(value.shape))
            spare = self._spare = BufferBlob.allocated(self._context, desc)
        return spare

    def advance(self, value: Array | GpuBlob) -> None:
        """Make what an inference wrote the present value."""
        before, self._held = self._held, value
        if value is self._spare:
            self._spare = before if isinstance(before, GpuBlob) else None
