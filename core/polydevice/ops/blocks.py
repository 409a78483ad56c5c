"""Elements moved between axes in blocks: DepthToSpace, BatchToSpace, ShuffleChannels, inverses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from typing_extensions import Self

from polydevice.errors import ShapeError
from polydevice.ops.op import Op, attribute, operation
from polydevice.shape import Dim, DimLike, bounds, dim, normalize_axis
from polydevice.tensor import TensorDesc


class DepthMode(Enum):
    """Whether a block's position or the remaining depth varies fastest along the depth axis."""

    BLOCKS_FIRST = "blocks_first"
    DEPTH_FIRST = "depth_first"


@operation("DepthToSpace", onnx="DepthToSpace")
class DepthToSpace(Op):
    """Spread the depth axis over blocks of the spatial axes.

    Inputs:  x  [N, C × block_size^k, D1 … Dk], any type
    Outputs: y  [N, C, D1 × block_size … Dk × block_size]
    Raises:  ShapeError when the depth is not a multiple of block_size^k
    Source:  OpenVINO opset1 DepthToSpace; ONNX DepthToSpace-13
    """

    mode: DepthMode = attribute()
    block_size: int = attribute(default=1)
    strings_at = (0,)

    @classmethod
    def from_onnx(cls, attributes: Mapping[str, Any], opset: int) -> Self:
        """Make it from ONNX's names of the modes: DCR (the default) and CRD."""
        text = attributes.get("mode", "DCR")
        if text not in ("DCR", "CRD"):
            raise ShapeError(f"mode {text!r} of DepthToSpace is not DCR or CRD")
        mode = DepthMode.DEPTH_FIRST if text == "CRD" else DepthMode.BLOCKS_FIRST
        return cls(mode=mode, block_size=int(attributes["blocksize"]))

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Divide the depth, multiply the spatial sizes."""
        (x,) = inputs
        if x.shape is None:
            return [x.with_shape(None)]
        _check_block(x, self.block_size)
        batch, depth, *space = x.shape
        block = self.block_size ** len(space)
        rest = _divided(depth, block, "depth")
        return [x.with_shape([batch, rest, *(size * self.block_size for size in space)])]


@operation("SpaceToDepth", onnx="SpaceToDepth")
class SpaceToDepth(Op):
    """Gather blocks of the spatial axes into the depth axis; the inverse of DepthToSpace.

    Inputs:  x  [N, C, D1 × block_size … Dk × block_size], any type
    Outputs: y  [N, C × block_size^k, D1 … Dk]
    Raises:  ShapeError when a spatial size is not a multiple of block_size
    Source:  OpenVINO opset1 SpaceToDepth; ONNX SpaceToDepth-13 is mode blocks_first
    """

    mode: DepthMode = attribute(default=DepthMode.BLOCKS_FIRST)
    block_size: int = attribute(default=1, onnx="blocksize")
    strings_at = (0,)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Multiply the depth, divide the spatial sizes."""
        (x,) = inputs
        if x.shape is None:
            return [x.with_shape(None)]
        _check_block(x, self.block_size)
        batch, depth, *space = x.shape
        sizes = [_divided(size, self.block_size, "spatial size") for size in space]
        return [x.with_shape([batch, depth * self.block_size ** len(space), *sizes])]


def _check_block(x: TensorDesc, block: int) -> None:
    if x.shape is not None and len(x.shape) < 3:
        raise ShapeError(f"{x.shape} has no spatial axes")
    if block < 1:
        raise ShapeError(f"block_size {block} is not positive")


def _divided(size: DimLike, by: int, what: str) -> DimLike:
    """Return size / by; raises ShapeError when that is not whole."""
    if isinstance(size, int) and size % by:
        raise ShapeError(f"{what} {size} is not a multiple of {by}")
    low, high = bounds(size)
    return dim(-(-low // by), None if high is None else high // by)


@operation("BatchToSpace", since=2)
class BatchToSpace(Op):
    """Spread the batch axis over blocks of the other axes, then crop.

    Inputs:  x            [N, …], any type
             block_shape  [rank of x], integer; the first is 1
             crops_begin, crops_end  [rank of x], integer
    Outputs: y            type of x
    Raises:  ShapeError when the batch is not a multiple of the blocks, or crops are too large
    Source:  OpenVINO opset2 BatchToSpace
    """

    per_axis_at = (1, 2, 3)
    strings_at = (0,)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Divide the batch, multiply the other sizes, subtract the crops."""
        self.check_count(inputs, 4)
        x = inputs[0]
        block, begin, end = (desc.static_ints for desc in inputs[1:4])
        if x.shape is None or block is None or begin is None or end is None:
            return [x.with_shape(None if x.shape is None else [None] * len(x.shape))]
        total = _blocks(block, begin, end, len(x.shape))
        sizes = [_divided(x.shape[0], total, "batch")]
        for i, size in enumerate(x.shape[1:], 1):
            low, high = bounds(size * block[i])
            if high is not None and begin[i] + end[i] > high:
                raise ShapeError(
                    f"crops {begin[i]} and {end[i]} exceed the size {high} at axis {i}"
                )
            cut = begin[i] + end[i]
            sizes.append(dim(low - cut, None if high is None else high - cut))
        return [x.with_shape(sizes)]


@operation("SpaceToBatch", since=2)
class SpaceToBatch(Op):
    """Pad with zeros, then gather blocks of the other axes into the batch axis.

    Inputs:  x            [N, …], any type
             block_shape  [rank of x], integer; the first is 1
             pads_begin, pads_end  [rank of x], integer
    Outputs: y            type of x
    Raises:  ShapeError when a padded size is not a multiple of its block
    Source:  OpenVINO opset2 SpaceToBatch
    """

    per_axis_at = (1, 2, 3)
    sized_by_values = True
    strings_at = (0,)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Multiply the batch, divide the padded sizes."""
        self.check_count(inputs, 4)
        x = inputs[0]
        block, begin, end = (desc.static_ints for desc in inputs[1:4])
        if x.shape is None or block is None or begin is None or end is None:
            return [x.with_shape(None if x.shape is None else [None] * len(x.shape))]
        total = _blocks(block, begin, end, len(x.shape))
        sizes = [x.shape[0] * total]
        for i, size in enumerate(x.shape[1:], 1):
            sizes.append(_divided(size + begin[i] + end[i], block[i], f"padded size at axis {i}"))
        return [x.with_shape(sizes)]


def _blocks(block: list[int], begin: list[int], end: list[int], rank: int) -> int:
    """Return the number of elements in a block; raises ShapeError when the lists do not fit."""
    if not len(block) == len(begin) == len(end) == rank:
        raise ShapeError(f"block_shape {block}, {begin} and {end} need {rank} elements each")
    if block and (block[0] != 1 or begin[0] or end[0]):
        raise ShapeError(f"block_shape {block}, {begin} and {end} must leave the batch axis alone")
    if any(size < 1 for size in block) or any(n < 0 for n in (*begin, *end)):
        raise ShapeError(f"block_shape {block} must be positive; {begin}, {end} not negative")
    total = 1
    for size in block:
        total *= size
    return total


@operation("ShuffleChannels", since=(1, 3))
class ShuffleChannels(Op):
    """Split an axis into `group` groups and interleave them.

    Inputs:  x  any shape and type
    Outputs: y  shape and type of x
    Raises:  ShapeError when the size at the axis is not a multiple of group
    Source:  OpenVINO opset3 ShuffleChannels
    """

    axis: int = attribute(default=1)
    group: int = attribute(default=1)
    strings_at = (0,)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return shape and type of x."""
        (x,) = inputs
        if self.group < 1:
            raise ShapeError(f"group {self.group} is not positive")
        if x.shape is not None:
            size = x.shape[normalize_axis(self.axis, len(x.shape))]
            if not isinstance(size, Dim):
                _divided(size, self.group, "size of the shuffled axis")
        return [x.without_value()]
