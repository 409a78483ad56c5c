"""Signal processing: Fourier transforms and running sums. Complex numbers are a last axis of 2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from polydevice.dataclass import dataclass
from polydevice.errors import ShapeError
from polydevice.interval import Interval, IntLike, limits, sized
from polydevice.ops.op import Op, attribute, operation
from polydevice.ops.pointwise import common_type
from polydevice.shape import Dim, DimLike, Shape, bounds, dim, normalize_axis
from polydevice.tensor import TensorDesc


@operation("CumSum", since=3)
class CumSum(Op):
    """Running sum along an axis.

    With `exclusive` an element itself does not count; with `reverse` the sum starts at the end.

    Inputs:  x     any shape of rank 1 or more, numeric
             axis  optional, one integer; 0 when left out
    Outputs: y     shape and type of x
    Raises:  ShapeError if the axis is outside the rank
    Source:  OpenVINO opset3 CumSum; ONNX CumSum-14
    """

    numbers_at = (1,)

    exclusive: bool = attribute(default=False)
    reverse: bool = attribute(default=False)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return shape and type of x."""
        x = inputs[0]
        axis = inputs[1].static_ints if len(inputs) > 1 else [0]
        if x.rank is not None and axis is not None:
            normalize_axis(axis[0], x.rank, "CumSum axis")
        return [x.without_value()]


@dataclass(frozen=True)
class FourierTransform(Op):
    """What the transforms over given axes share.

    Each axis is first cut, or filled up with zeros, to its signal size (-1: as it is).

    Raises: ShapeError if axes repeat or lie outside the rank, or a size is not possible
    """

    sized_by_values = True

    complex_input: ClassVar[bool] = True
    complex_output: ClassVar[bool] = True

    def axes_of(self, axes: Sequence[int], rank: int) -> list[int]:
        """Count the axes from the front; `rank` is the input's, the axis of 2 included."""
        signal_rank = rank - 1 if self.complex_input else rank
        places = [normalize_axis(axis, signal_rank, f"{self.type} axis") for axis in axes]
        if len(set(places)) != len(places):
            raise ShapeError(f"{self.type}: axes {list(axes)} repeat")
        return places

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return x with transformed sizes, and the axis of 2 added, kept or dropped."""
        x, axes = inputs[:2]
        if x.shape is None:
            return [x.with_shape(None)]
        signal: list[DimLike] = list(x.shape)
        if self.complex_input:
            if len(signal) < 2 or (isinstance(signal[-1], int) and signal[-1] != 2):
                raise ShapeError(f"{self.type}: {x.shape} must end in an axis of 2 (re, im)")
            signal.pop()
        if axes.shape is not None and 0 in axes.shape:
            raise ShapeError(f"{self.type}: no axis is given")
        numbers = axes.static_ints
        if numbers is None:
            signal = [Dim()] * len(signal)
        else:
            places = self.axes_of(numbers, len(x.shape))
            self._resize(signal, places, inputs[2] if len(inputs) > 2 else None)
        return [x.with_shape([*signal, 2] if self.complex_output else signal)]

    def _resize(self, signal: list[DimLike], places: list[int], wanted: TensorDesc | None) -> None:
        sizes: list[IntLike] = [-1] * len(places)
        if wanted is not None:
            known = wanted.ints
            sizes = [Interval()] * len(places) if known is None else known
            if len(sizes) != len(places):
                raise ShapeError(
                    f"{self.type}: {len(sizes)} signal sizes are given for {len(places)} axes"
                )
        for i, (place, size) in enumerate(zip(places, sizes, strict=True)):
            if isinstance(size, int) and (size < -1 or size == 0):
                raise ShapeError(f"{self.type}: a signal size of {size} is not possible")
            # One that is not known may be -1, unless it is a size for certain.
            free = isinstance(size, Interval) and limits(size)[0] < 0
            last = i == len(places) - 1
            signal[place] = self.output_size(signal[place], Dim() if free else sized(size), last)

    def output_size(self, size: DimLike, wanted: DimLike, last: bool) -> DimLike:
        """Return the output's size of one axis; `wanted` is -1 where it stays."""
        return size if wanted == -1 else wanted


@operation("DFT", since=7)
class DFT(FourierTransform):
    """Discrete Fourier transform of complex numbers.

    Inputs:  x            [..., 2], floating point
             axes         integers, not the last axis
             signal_size  optional, one integer per axis
    Outputs: y            [..., 2], type of x
    Raises:  ShapeError if axes or sizes do not fit
    Source:  OpenVINO opset7 DFT
    """


@operation("IDFT", since=7)
class IDFT(FourierTransform):
    """Inverse discrete Fourier transform of complex numbers, divided by the number of elements.

    Inputs:  x            [..., 2], floating point
             axes         integers, not the last axis
             signal_size  optional, one integer per axis
    Outputs: y            [..., 2], type of x
    Raises:  ShapeError if axes or sizes do not fit
    Source:  OpenVINO opset7 IDFT
    """


@operation("RDFT", since=9)
class RDFT(FourierTransform):
    """Discrete Fourier transform of real numbers; the last of the axes keeps its first half.

    Inputs:  x            any shape, floating point
             axes         integers
             signal_size  optional, one integer per axis
    Outputs: y            [..., n // 2 + 1, ..., 2], type of x
    Raises:  ShapeError if axes or sizes do not fit
    Source:  OpenVINO opset9 RDFT
    """

    complex_input = False

    def output_size(self, size: DimLike, wanted: DimLike, last: bool) -> DimLike:
        """Keep half of the last axis."""
        size = size if wanted == -1 else wanted
        return size // 2 + 1 if last else size


@operation("IRDFT", since=9)
class IRDFT(FourierTransform):
    """Inverse of RDFT: from the first half of the last axis to real numbers.

    Inputs:  x            [..., 2], floating point
             axes         integers, not the last axis
             signal_size  optional, one integer per axis
    Outputs: y            real, 2 * (n - 1) long on the last axis unless a size is given
    Raises:  ShapeError if axes or sizes do not fit
    Source:  OpenVINO opset9 IRDFT
    """

    complex_output = False

    def output_size(self, size: DimLike, wanted: DimLike, last: bool) -> DimLike:
        """Double the last axis."""
        if wanted != -1:
            return wanted
        return (size - 1) * 2 if last else size


def _scalar(desc: TensorDesc) -> int | None:
    values = desc.static_ints
    return None if values is None else values[0]


@operation("STFT", since=15)
class STFT(Op):
    """Fourier transforms of overlapping frames of a real signal.

    A window shorter than a frame is centred in it. The first half of each spectrum is kept.

    Inputs:  signal      [T] or [N, T], floating point
             window      [W], W <= frame_size, same type
             frame_size  one integer
             frame_step  one integer
    Outputs: y           [N, frames, frame_size // 2 + 1, 2], with `transpose_frames`
                         [N, frame_size // 2 + 1, frames, 2]; without N for a signal of rank 1
    Raises:  ShapeError if sizes do not fit
    Source:  OpenVINO opset15 STFT
    """

    numbers_at = (2, 3)
    sized_by_values = True

    transpose_frames: bool = attribute()

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Count the frames."""
        signal, window, size, step = inputs
        common_type(self, signal, window)
        if signal.shape is None:
            return [signal.with_shape(None)]
        if len(signal.shape) not in (1, 2):
            raise ShapeError(f"STFT: the signal {signal.shape} must be of rank 1 or 2")
        length, hop = _scalar(size), _scalar(step)
        _check_frames(self, window, length, hop)
        frames: DimLike = Dim()
        half: DimLike = Dim() if length is None else length // 2 + 1
        if length is not None and hop is not None:
            low, high = bounds(signal.shape[-1])
            if high is not None and high < length:
                raise ShapeError(f"STFT: frames of {length} exceed the signal {signal.shape}")
            most = None if high is None else (high - length) // hop + 1
            frames = dim((max(low, length) - length) // hop + 1, most)
        plane = (half, frames) if self.transpose_frames else (frames, half)
        return [signal.with_shape([*signal.shape[:-1], *plane, 2])]


def _check_frames(op: Op, window: TensorDesc, length: int | None, hop: int | None) -> None:
    if (length is not None and length < 1) or (hop is not None and hop < 1):
        raise ShapeError(f"{op.type}: frame_size {length} and frame_step {hop} must be positive")
    if window.shape is None:
        return
    if len(window.shape) != 1:
        raise ShapeError(f"{op.type}: the window {window.shape} must be of rank 1")
    if length is not None and bounds(window.shape[0])[0] > length:
        raise ShapeError(f"{op.type}: the window {window.shape} exceeds frames of {length}")


@operation("ISTFT", since=16)
class ISTFT(Op):
    """The signal whose STFT is given: frames added up, over the sum of squared windows.

    `center` drops half a frame at both ends; `normalized` undoes a division of the spectra by
    sqrt(frame_size).

    Inputs:  x              [frame_size // 2 + 1, frames, 2], or with N in front, floating point
             window         [W], W <= frame_size, same type
             frame_size     one integer
             frame_step     one integer
             signal_length  optional, one integer; the signal is cut or filled up with zeros
    Outputs: y              [T] or [N, T], type of x
    Raises:  ShapeError if sizes do not fit
    Source:  OpenVINO opset16 ISTFT
    """

    numbers_at = (2, 3, 4)
    sized_by_values = True

    center: bool = attribute()
    normalized: bool = attribute()

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the length that was asked for, or that the frames cover."""
        x, window, size, step = inputs[:4]
        common_type(self, x, window)
        if x.shape is None:
            return [x.with_shape(None)]
        if len(x.shape) not in (3, 4):
            raise ShapeError(f"ISTFT: {x.shape} must be of rank 3 or 4")
        if isinstance(x.shape[-1], int) and x.shape[-1] != 2:
            raise ShapeError(f"ISTFT: {x.shape} must end in an axis of 2 (re, im)")
        length, hop = _scalar(size), _scalar(step)
        _check_frames(self, window, length, hop)
        total: DimLike = Dim()
        if len(inputs) > 4:
            asked = _scalar(inputs[4])
            if asked is not None and asked < 0:
                raise ShapeError(f"ISTFT: signal_length {asked} is negative")
            total = total if asked is None else asked
        elif length is not None and hop is not None:
            covered = (x.shape[-2] - 1) * hop + length
            total = covered - length // 2 * 2 if self.center else covered
        return [TensorDesc(x.element_type, Shape([*x.shape[:-3], total]))]
