"""Fourier transforms and running sums."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from polydevice.dtype import Array
from polydevice.errors import InferenceError, ShapeError
from polydevice.ops.signal import DFT, IDFT, IRDFT, ISTFT, RDFT, STFT, CumSum, FourierTransform
from polydevice.shape import normalize_axis
from polydevice_cpu.algorithms.precision import is_float, narrow, widen
from polydevice_cpu.implement import implements


@implements(CumSum)
def cum_sum(op: CumSum, x: Array, *axis: Array) -> Array:
    """Narrow floats are summed in f32, integers in 64 bits whose low ones are kept."""
    along = normalize_axis(int(axis[0].reshape(-1)[0]), x.ndim) if axis else 0
    if not x.ndim:
        raise ShapeError("CumSum: x has no axes")
    wide = widen(x) if is_float(x.dtype) else x.astype(np.int64)
    before = (slice(None),) * along
    turned = (*before, slice(None, None, -1))
    if op.reverse:
        wide = wide[turned]
    if op.exclusive and wide.shape[along]:
        total = np.zeros(wide.shape, wide.dtype)
        but_first, but_last = (*before, slice(1, None)), (*before, slice(None, -1))
        total[but_first] = _running(wide[but_last], along)
    else:
        total = _running(wide, along)
    if op.reverse:
        total = total[turned]
    return narrow(np.ascontiguousarray(total), x.dtype)


SIDE_BY_SIDE = 16
"""From so many sums on that lie side by side, each position is added to all of them at once."""


def _running(x: Array, axis: int) -> Array:
    """Return the sums up to each position, added from the front."""
    few = 8 * x.size < 3_000 + 600 * x.shape[axis]  # ns that either way takes
    if few or math.prod(x.shape[axis + 1 :]) < SIDE_BY_SIDE:
        return np.asarray(np.add.accumulate(x, axis))  # `cumsum` spends 2 us on finding it
    # NumPy goes along the axis for each sum: 32x1536 numbers take it 410 us, and 37 so.
    total = np.empty(x.shape, x.dtype)
    source, sums = np.moveaxis(x, axis, 0), np.moveaxis(total, axis, 0)
    sums[0] = source[0]
    for position in range(1, len(source)):
        np.add(sums[position - 1], source[position], out=sums[position])
    return total


def spectrum_of(x: Array) -> Array:
    """Read the last axis as real and imaginary part."""
    wide = np.ascontiguousarray(widen(x))
    kind = np.complex64 if wide.dtype == np.float32 else np.complex128
    return np.asarray(wide.view(kind)[..., 0])


def pairs_of(y: Array, dtype: np.dtype[Any]) -> Array:
    """Write real and imaginary part to a new last axis; as they lie, where types are alike."""
    if not y.ndim:
        return np.stack([y.real, y.imag], axis=-1).astype(dtype)
    parts = np.ascontiguousarray(y).view(y.real.dtype)
    return parts.reshape(*y.shape, 2).astype(dtype, copy=False)


def _axes(
    op: FourierTransform, x: Array, axes: Array, signal_size: Array | None
) -> tuple[list[int], list[int]]:
    """Return the axes from the front, and how long each is made."""
    places = op.axes_of([int(a) for a in axes.reshape(-1)], x.ndim)
    sizes = [x.shape[place] for place in places]
    if isinstance(op, IRDFT) and sizes:
        sizes[-1] = 2 * (sizes[-1] - 1)
    if signal_size is not None:
        asked = [int(n) for n in signal_size.reshape(-1)]
        sizes = [size if n == -1 else n for size, n in zip(sizes, asked, strict=True)]
    if any(size < 1 for size in sizes):
        raise InferenceError(f"{op.type}: signal sizes {sizes} must be at least 1")
    return places, sizes


@implements(DFT)
def dft(op: DFT, x: Array, axes: Array, signal_size: Array | None = None) -> Array:
    """NumPy cuts and fills up as the operation asks."""
    places, sizes = _axes(op, x, axes, signal_size)
    if len(places) == 1:  # as `fftn` would in 10 us more
        return pairs_of(np.fft.fft(spectrum_of(x), sizes[0], places[0]), x.dtype)
    return pairs_of(np.fft.fftn(spectrum_of(x), sizes, places), x.dtype)


@implements(IDFT)
def idft(op: IDFT, x: Array, axes: Array, signal_size: Array | None = None) -> Array:
    """NumPy divides by the number of elements, too."""
    places, sizes = _axes(op, x, axes, signal_size)
    if len(places) == 1:
        return pairs_of(np.fft.ifft(spectrum_of(x), sizes[0], places[0]), x.dtype)
    return pairs_of(np.fft.ifftn(spectrum_of(x), sizes, places), x.dtype)


@implements(RDFT)
def rdft(op: RDFT, x: Array, axes: Array, signal_size: Array | None = None) -> Array:
    """The real transform comes first, along the last of the axes."""
    places, sizes = _axes(op, x, axes, signal_size)
    return pairs_of(np.fft.rfftn(widen(x), sizes, places), x.dtype)


@implements(IRDFT)
def irdft(op: IRDFT, x: Array, axes: Array, signal_size: Array | None = None) -> Array:
    """The real transform comes last, along the last of the axes."""
    places, sizes = _axes(op, x, axes, signal_size)
    spectrum = spectrum_of(x)
    if not spectrum.size:  # NumPy's real transform of no numbers reads what lies behind them
        shape = list(spectrum.shape)
        for place, size in zip(places, sizes, strict=True):
            shape[place] = size
        return np.zeros(shape, x.dtype)
    return narrow(np.fft.irfftn(spectrum, sizes, places), x.dtype)


def centred(window: Array, length: int) -> Array:
    """Centre a window in a frame."""
    before = (length - window.size) // 2
    return np.pad(widen(window), (before, length - window.size - before))


def _frame(op: STFT | ISTFT, window: Array, size: Array, step: Array) -> tuple[int, int]:
    """Return length and distance of frames; raises InferenceError where they cannot be."""
    length, hop = int(size.reshape(-1)[0]), int(step.reshape(-1)[0])
    if length < 1 or hop < 1 or window.size > length:
        raise InferenceError(
            f"{op.type}: frame_size {length} must hold the window of {window.size}, and "
            f"frame_step {hop} be positive"
        )
    return length, hop


@implements(STFT)
def stft(op: STFT, signal: Array, window: Array, size: Array, step: Array) -> Array:
    """Cut frames as views, weight them, and transform all at once."""
    length, hop = _frame(op, window, size, step)
    if signal.shape[-1] < length:
        raise InferenceError(f"STFT: frames of {length} exceed the signal of {signal.shape[-1]}")
    frames = sliding_window_view(widen(signal), length, axis=-1)[..., ::hop, :]
    spectra = np.fft.rfft(frames * centred(window, length), axis=-1)
    if op.transpose_frames:
        spectra = spectra.swapaxes(-1, -2)
    return pairs_of(spectra, signal.dtype)


@implements(ISTFT)
def istft(
    op: ISTFT, x: Array, window: Array, size: Array, step: Array, signal_length: Array | None = None
) -> Array:
    """Add the frames up, then divide by the sum of squared windows where it is not 0."""
    length, hop = _frame(op, window, size, step)
    spectra = spectrum_of(x).swapaxes(-1, -2)
    if spectra.shape[-1] != length // 2 + 1:
        raise ShapeError(
            f"ISTFT: {x.shape} has {spectra.shape[-1]} frequencies; frames of {length} have "
            f"{length // 2 + 1}"
        )
    weights = centred(window, length)
    frames = np.fft.irfft(spectra, length, axis=-1) * weights
    if op.normalized:
        frames = frames * frames.dtype.type(np.sqrt(length))
    count = frames.shape[-2]
    total = np.zeros((*frames.shape[:-2], (count - 1) * hop + length), frames.dtype)
    norm = np.zeros(total.shape[-1], frames.dtype)
    for i in range(count):
        total[..., i * hop : i * hop + length] += frames[..., i, :]
        norm[i * hop : i * hop + length] += weights * weights
    total = np.where(norm > np.finfo(norm.dtype).tiny, total / np.where(norm == 0, 1, norm), total)
    if op.center:
        total = total[..., length // 2 :]
        if signal_length is None:
            total = total[..., : total.shape[-1] - length // 2]
    if signal_length is not None:
        wanted = int(signal_length.reshape(-1)[0])
        missing = max(wanted - total.shape[-1], 0)
        total = np.pad(total[..., :wanted], [(0, 0)] * (total.ndim - 1) + [(0, missing)])
    return narrow(np.ascontiguousarray(total), x.dtype)
