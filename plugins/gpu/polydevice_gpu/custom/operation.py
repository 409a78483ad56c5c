"""Custom: an operation that a custom layer computes, in place of the device's own kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from polydevice.dataclass import dataclass
from polydevice.network import Network
from polydevice.ops.op import Op
from polydevice.tensor import TensorDesc
from polydevice_gpu.custom.layer import CustomLayer


@dataclass(frozen=True)
class Custom(Op):
    """An operation with a custom layer's kernel.

    Inputs:  those of `original`
    Outputs: those of `original`
    Source:  CONFIG_FILE
    """

    domain = "polydevice_gpu"
    is_stateful = True
    """The kernel counts, so that it is not computed ahead by other means."""

    layer: CustomLayer
    original: Op

    @property
    def type(self) -> str:  # type: ignore[override]
        """The type of the operation, for reports."""
        return self.original.type

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return what the operation gives."""
        return self.original.infer(inputs)


def use_custom_layers(network: Network, layers: Mapping[str, CustomLayer]) -> None:
    """Let layers compute the operations of their type; also those that kernels exist for."""
    for node in network.nodes():
        layer = layers.get(node.op.type)
        if layer is not None and not isinstance(node.op, Custom):
            node.op = Custom(layer, node.op)
