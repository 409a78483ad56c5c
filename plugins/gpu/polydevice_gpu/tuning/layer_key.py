"""LayerKey: the names under which a tuning file keeps a layer's choice."""

from __future__ import annotations

import re

import numpy as np

from polydevice.dataclass import dataclass
from polydevice.ops.convolution import Convolution
from polydevice.ops.matmul import MatMul
from polydevice_gpu.graph import GpuNode, Value
from polydevice_gpu.kernels.kernel import kernels_of

_OFFSET, _PRIME, _MASK = 0xCBF29CE484222325, 0x100000001B3, (1 << 64) - 1
_LISTED = 8
"""Longest list of integers that is part of a key."""

_SIZE = re.compile(r"_v(\d{1,18})_p")


@dataclass(frozen=True)
class LayerKey:
    """A layer as tuning files name it.

    Attributes:
        kind: CONVOLUTION, FULLY_CONNECTED, GEMM, or the operation's name in the same manner:
            REDUCE_MEAN, TOP_K.
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
    """Return a node's key; None when there is only one way to compute its operation.

    The text is built as in the original (tensors as type, format, then size and padding from X to
    B; then the attributes), followed by the fused operations and the device. So it never equals
    an entry of the original's own files, which are for kernels that we do not have.
    """
    op = node.op
    if node.choice is None or sum(len(kernel.modes) for kernel in kernels_of(type(op))) < 2:
        return None
    attributes = "_".join(f"{name}={value}" for name, value in sorted(op.to_ir().items()))
    parts = [_tensor(value) for value in (*node.inputs, *node.outputs)]
    parts += [f"{op.type}_{attributes}", str(node.epilogue or "NONE"), device_name]
    return LayerKey(kind_of(node), ";".join(part.replace(";", ",") for part in parts))


def part_of(text: str) -> str:
    """Return what the text of a key says of the second tensor, which mostly are weights."""
    return text.split(";", 2)[1] if ";" in text else ""


def sizes_of(text: str) -> tuple[int, ...]:
    """Return what the text of a key says of the sizes of the first tensor, the outermost first."""
    return tuple(int(size) for size in reversed(_SIZE.findall(text.partition(";")[0])))


def first_tensors(node: GpuNode) -> list[Value]:
    """Return the tensors that `sizes_of` and `part_of` a node's key are about, if it has them."""
    return [*node.inputs, *node.outputs][:2]


def part(node: GpuNode) -> str:
    """Return `part_of` a node's key, which takes a tenth of the time to write."""
    both = first_tensors(node)
    return _tensor(both[1]).replace(";", ",") if len(both) > 1 else ""


def kind_of(node: GpuNode) -> str:
    """Return the kind in a node's key."""
    op = node.op
    if isinstance(op, Convolution):
        return "CONVOLUTION"  # with groups, too
    if isinstance(op, MatMul):
        return "GEMM" if node.inputs[1].constant is None else "FULLY_CONNECTED"
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(op).__name__).upper()


def _tensor(value: Value) -> str:
    """Write type and layout, then size and pitch of every axis, the innermost first.

    And the elements of short lists of integers: axes, of which sizes do not tell.
    """
    layout = value.placed
    axes = zip(reversed(value.shape), reversed(layout.pitches), strict=True)
    sizes = "".join(f"_v{size}_p{pitch}" for size, pitch in axes)
    text = f"{value.storage.precision}_{layout.named(value.shape).upper()}{sizes}"
    if value.constant is None or value.elements > _LISTED or not value.storage.is_integer:
        return text
    return f"{text}_c{','.join(map(str, np.asarray(value.constant).reshape(-1)))}"
