"""LayerKey: the names under which a tuning file keeps a layer's choice."""

from __future__ import annotations

from dataclasses import dataclass

from polydevice.ops.convolution import Convolution
from polydevice.ops.matmul import MatMul
from polydevice_gpu.graph import GpuNode, Value
from polydevice_gpu.kernels.kernel import kernels_of

_OFFSET, _PRIME, _MASK = 0xCBF29CE484222325, 0x100000001B3, (1 << 64) - 1


@dataclass(frozen=True)
class LayerKey:
    """A layer as tuning files name it.

    Attributes:
        kind: CONVOLUTION, FULLY_CONNECTED or GEMM.
        text: everything that its speed depends on, separated by semicolons.
    """

    kind: str
    text: str

    @property
    def hash(self) -> str:
        """The name in files of version 1: 64-bit FNV-1a of the text, in decimal."""
        value = _OFFSET
        for byte in f"{self.kind};{self.text}".encode():
            value = (value ^ byte) * _PRIME & _MASK
        return str(value)


def layer_key(node: GpuNode, device_name: str) -> LayerKey | None:
    """Return a node's key; None when it is of a kind that is not tuned.

    The text is built as in the original (tensors as type, format, then size and padding from X to
    B; then the attributes), followed by the fused operations and the device. So it never equals
    an entry of the original's own files, which are for kernels that we do not have.
    """
    op = node.op
    if node.choice is None or len(kernels_of(type(op))) < 2:
        return None
    if isinstance(op, Convolution):
        kind = "CONVOLUTION"
    elif isinstance(op, MatMul):
        kind = "GEMM" if node.inputs[1].constant is None else "FULLY_CONNECTED"
    else:
        return None
    attributes = "_".join(f"{name}={value}" for name, value in sorted(op.to_ir().items()))
    parts = [_tensor(value) for value in (*node.inputs, node.output)]
    parts += [f"{op.type}_{attributes}", str(node.epilogue or "NONE"), device_name]
    return LayerKey(kind, ";".join(part.replace(";", ",") for part in parts))


def _tensor(value: Value) -> str:
    """Write type and layout, then size and pitch of every axis, the innermost first."""
    layout = value.placed
    axes = zip(reversed(value.shape), reversed(layout.pitches), strict=True)
    sizes = "".join(f"_v{size}_p{pitch}" for size, pitch in axes)
    return f"{value.storage.precision}_{layout.named(value.shape).upper()}{sizes}"
