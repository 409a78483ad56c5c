"""Normalisations: by stored or computed mean and variance, by norm, by neighbouring channels."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from polydevice.errors import ShapeError
from polydevice.ops.op import Op, attribute, operation
from polydevice.ops.pointwise import common_type
from polydevice.shape import DimLike, merge_dim, normalize_axis
from polydevice.tensor import TensorDesc


class EpsMode(enum.Enum):
    """Where epsilon enters.

    MVN: INSIDE_SQRT sqrt(var + eps), OUTSIDE_SQRT sqrt(var) + eps.
    NormalizeL2: ADD sqrt(sum + eps), MAX sqrt(max(sum, eps)).
    """

    INSIDE_SQRT = "inside_sqrt"
    OUTSIDE_SQRT = "outside_sqrt"
    ADD = "add"
    MAX = "max"


def _check_channels(op: Op, x: TensorDesc, vectors: Sequence[TensorDesc]) -> None:
    """Raise unless every vector has one item per channel (axis 1) of x."""
    channels: DimLike | None = None
    if x.shape is not None:
        if len(x.shape) < 2:
            raise ShapeError(f"{op.type}: data {x.shape} has no channel axis; rank 2 is the least")
        channels = x.shape[1]
    for vector in vectors:
        common_type(op, x, vector)
        if vector.shape is None:
            continue
        if len(vector.shape) != 1:
            raise ShapeError(f"{op.type}: {vector.shape} must be of rank 1, one item per channel")
        try:
            channels = merge_dim(vector.shape[0] if channels is None else channels, vector.shape[0])
        except ShapeError:
            raise ShapeError(
                f"{op.type}: {vector.shape[0]} items for the {channels} channels of {x.shape}"
            ) from None


@operation("BatchNormInference", since=5)
class BatchNormInference(Op):
    """gamma * (x - mean) / sqrt(variance + epsilon) + beta, per channel.

    Inputs:  x                            [N, C, ...], floating point
             gamma, beta, mean, variance  [C], same type
    Outputs: y                            shape and type of x
    Raises:  ShapeError if the vectors do not have C items
    Source:  OpenVINO opset5 BatchNormInference; ONNX BatchNormalization
    """

    epsilon: float = attribute(default=1e-5)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return shape and type of x."""
        x, gamma, beta, mean, variance = inputs
        _check_channels(self, x, (gamma, beta, mean, variance))
        return [x.without_value()]


@operation("BatchNormInference", since=1)
class BatchNormInferenceV1(BatchNormInference):
    """BatchNormInference with the data as third input.

    Inputs:  gamma, beta     [C], floating point
             x               [N, C, ...], same type
             mean, variance  [C], same type
    Outputs: y               shape and type of x
    Raises:  ShapeError if the vectors do not have C items
    Source:  OpenVINO opset1 BatchNormInference
    """

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return shape and type of x."""
        gamma, beta, x, mean, variance = inputs
        return super().infer([x, gamma, beta, mean, variance])


@operation("LRN")
class LRN(Op):
    """x / (bias + alpha / size^k * sum of squares in a window of `size` along k axes) ^ beta.

    The window is centred ((size - 1) // 2 elements before, size // 2 after) and cut at the edges.
    An empty list of axes takes the window's one element.

    Inputs:  x     any shape, floating point
             axes  integers
    Outputs: y     shape and type of x
    Raises:  ShapeError if an axis is outside the rank or `size` is below 1
    Source:  OpenVINO opset1 LRN
    """

    alpha: float = attribute()
    beta: float = attribute()
    size: int = attribute()
    bias: float = attribute(default=1.0)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return shape and type of x."""
        x, axes = inputs
        if self.size < 1:
            raise ShapeError(f"LRN: size {self.size} must be at least 1")
        _check_axes(self, x, axes)
        return [x.without_value()]


def _check_axes(op: Op, x: TensorDesc, axes: TensorDesc) -> None:
    numbers = axes.static_ints
    if x.rank is not None and numbers is not None:
        for axis in numbers:
            normalize_axis(axis, x.rank, f"{op.type} axis")


@operation("MVN", since=6)
class MVN(Op):
    """(x - mean), over the standard deviation when `normalize_variance`, along some axes.

    Inputs:  x     any shape, floating point
             axes  integers
    Outputs: y     shape and type of x
    Raises:  ShapeError if an axis is outside the rank
    Source:  OpenVINO opset6 MVN
    """

    normalize_variance: bool = attribute()
    eps: float = attribute()
    eps_mode: EpsMode = attribute()

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return shape and type of x."""
        x, axes = inputs
        _check_axes(self, x, axes)
        return [x.without_value()]


@operation("MVN", since=(1, 2))
class MVNV2(Op):
    """MVN over all axes but N, and C too when `across_channels`; epsilon inside the root.

    Inputs:  x  [N, C, ...], floating point
    Outputs: y  shape and type of x
    Source:  OpenVINO opset2 MVN
    """

    across_channels: bool = attribute(default=True)
    normalize_variance: bool = attribute(default=True)
    eps: float = attribute(default=1e-9)

    def axes(self, rank: int) -> tuple[int, ...]:
        """Return the axes over which mean and variance are taken for data of that rank."""
        return tuple(range(1 if self.across_channels else 2, rank))

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return shape and type of x."""
        return [inputs[0].without_value()]


@operation("NormalizeL2")
class NormalizeL2(Op):
    """X over the square root of its sum of squares along some axes.

    Inputs:  x     any shape, floating point
             axes  integers; with an empty list elements other than 0 become 1
    Outputs: y     shape and type of x
    Raises:  ShapeError if an axis is outside the rank
    Source:  OpenVINO opset1 NormalizeL2
    """

    eps: float = attribute()
    eps_mode: EpsMode = attribute()

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return shape and type of x."""
        x, axes = inputs
        _check_axes(self, x, axes)
        return [x.without_value()]


@operation("GRN")
class GRN(Op):
    """X / sqrt(bias + sum of squares over the channels).

    Inputs:  x  [N, C, ...], floating point
    Outputs: y  shape and type of x
    Source:  OpenVINO opset1 GRN
    """

    bias: float = attribute()

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return shape and type of x."""
        (x,) = inputs
        if x.rank is not None and x.rank < 2:
            raise ShapeError(f"GRN: data {x.shape} has no channel axis; rank 2 is the least")
        return [x.without_value()]


@operation("GroupNormalization", since=12)
class GroupNormalization(Op):
    """Normalise each group of channels by its mean and variance; then scale and shift channels.

    y = scale[c] * (x - mean) / sqrt(variance + epsilon) + bias[c], mean and variance taken over
    C / num_groups neighbouring channels and all spatial axes.

    Inputs:  x            [N, C, ...], floating point
             scale, bias  [C], same type
    Outputs: y            shape and type of x
    Raises:  ShapeError if num_groups does not divide C
    Source:  OpenVINO opset12 GroupNormalization; ONNX GroupNormalization-21
    """

    num_groups: int = attribute()
    epsilon: float = attribute()

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return shape and type of x."""
        x, scale, bias = inputs
        _check_channels(self, x, (scale, bias))
        channels = x.shape[1] if x.shape is not None else None
        if self.num_groups < 1 or (isinstance(channels, int) and channels % self.num_groups):
            raise ShapeError(
                f"GroupNormalization: num_groups {self.num_groups} does not divide the "
                f"{channels} channels"
            )
        return [x.without_value()]
