"""UnknownOperation: a layer of an IR whose type nothing here defines."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.dataclass import dataclass
from polydevice.errors import ShapeError, nearest
from polydevice.ops.op import EVERYWHERE, Op, operations
from polydevice.tensor import TensorDesc


@dataclass(frozen=True)
class UnknownOperation(Op):
    """An operation that is carried along: what it computes is for a device to know.

    A device may have been told by its user (CONFIG_FILE of GPU); all others refuse it when a
    network is loaded. Its outputs are what the file says of them, and so are right only for
    inputs as in the file.

    Inputs:  as `inputs` describes them
    Outputs: as `outputs` describes them
    Raises:  ShapeError for other inputs than the file's
    Source:  any operation set of an IR file
    """

    domain = "unknown"
    strings_at = EVERYWHERE
    containers_at = EVERYWHERE
    is_stateful = True
    """For all that is known; it is not computed ahead by other means."""

    kind: str
    """Type in the file."""
    version: str
    """Operation set in the file."""
    texts: tuple[tuple[str, str], ...]
    """Names and texts of its attributes."""
    inputs: tuple[TensorDesc, ...]
    outputs: tuple[TensorDesc, ...]

    @property
    def type(self) -> str:  # type: ignore[override]
        """The type in the file."""
        return self.kind

    @property
    def opset(self) -> str:
        """The operation set in the file."""
        return self.version

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return what the file says."""
        for given, stated in zip(inputs, self.inputs, strict=True):
            if given.shape is None or stated.shape is None:
                continue
            if not stated.shape.admits(given.shape):
                raise ShapeError(
                    f"its input is {given} where the file says {stated}, and how the outputs of "
                    f"{self.kind} depend on that is not known; define the operation in a plugin "
                    "(register_operations), or keep the file's sizes"
                )
        return list(self.outputs)

    def to_ir(self) -> dict[str, str]:
        """Return the attribute texts."""
        return dict(self.texts)

    @property
    def hint(self) -> str:
        """Say that the type is not known."""
        return f"polydevice does not know {self.kind}."

    def similar(self) -> str:
        """Ask whether a type of nearly this name is meant, if there is one; takes 1 ms."""
        return nearest(self.kind, {cls.type for cls in operations()})
