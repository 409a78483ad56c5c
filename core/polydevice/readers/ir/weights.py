"""The weights of an IR (.bin): opening them safely, and cutting constants out of them."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.errors import ModelFileError, ModelLimitError, WeightsError
from polydevice.files.safe_open import open_beside, open_given
from polydevice.readers.limits import ReadLimits
from polydevice.shape import has_array

Source = str | os.PathLike[str] | bytes | bytearray | memoryview
"""Where a file's content comes from: a path (str or PathLike), or the content itself."""


def read_topology(path: Path, limits: ReadLimits) -> bytes:
    """Read a topology file whole; raises ModelFileError or ModelLimitError."""
    descriptor, size = open_given(path, "model file", ModelFileError)
    with os.fdopen(descriptor, "rb") as file:
        if size > limits.topology_bytes:
            raise ModelLimitError(
                f"model file {str(path)!r} has {size} bytes, more than "
                f"ReadLimits.topology_bytes = {limits.topology_bytes}"
            )
        return file.read(limits.topology_bytes + 1)


NORMAL_FLOATS = np.array(
    [
        *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
        *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
        *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
        *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
    ],
    np.float32,
)
"""What the 16 codes of nf4 stand for: quantiles of a normal distribution (QLoRA, appendix E)."""


class WeightsFile:
    """The bytes of a weights file, and constants as arrays on them (without copies)."""

    def __init__(self, data: Array | None, title: str) -> None:
        self._data = data
        self._title = title

    @classmethod
    def open(cls, weights: Source | None, model: Path | None, limits: ReadLimits) -> WeightsFile:
        """Open weights given as a path, as bytes, or not at all.

        Without `weights` the file beside `model` with the suffix ``.bin`` is taken; its absence
        matters only when a constant asks for data. That one must lie there itself, as no link
        leads out of the folder; a path that is given may lead anywhere.

        Raises:
            WeightsError: a path was given that is missing or no regular file.
            ModelFileError: the file beside the model is no regular file, or a link.
            ModelLimitError: the file is larger than the limit.
        """
        if weights is None:
            if model is None:
                return cls(
                    None,
                    "the model was given as bytes, without weights: pass the content "
                    "of its .bin file as weights=",
                )
            path = model.with_suffix(".bin")
            if not os.path.lexists(path):
                return cls(
                    None,
                    f"there is no {str(path)!r} beside the model: pass the weights "
                    "file as weights=",
                )
            opened = _open_beside(path)
        elif isinstance(weights, (bytes, bytearray, memoryview)):
            return cls(np.frombuffer(weights, np.uint8), "the weights given as bytes")
        else:
            path = Path(weights)
            opened = open_given(path, "weights file", WeightsError)
        return cls(_file_content(*opened, path, limits), f"weights file {str(path)!r}")

    def view(self, offset: int, size: int, title: str) -> Array:
        """Return `size` bytes from `offset` on, read-only.

        Raises:
            WeightsError: there are no weights, or the range is not inside them; names `title`.
        """
        if self._data is None:
            raise WeightsError(f"{title} needs weights, and {self._title}")
        total = self._data.size
        if offset < 0 or size < 0 or size > total or offset > total - size:
            raise WeightsError(
                f"{title} refers to {size} bytes at offset {offset}, but {self._title} has "
                f"{total} bytes; is it truncated, or another model's file?"
            )
        return self._data[offset : offset + size]

    def constant(
        self, element_type: ElementType, shape: tuple[int, ...], offset: int, size: int, title: str
    ) -> Array:
        """Return a constant's elements as an array of `shape`, read-only.

        Elements of a byte or more are a view on the weights where they are aligned to their size
        there; others are unpacked.

        Raises:
            WeightsError: the range is not inside the weights, or `size` does not fit the shape.
        """
        elements = math.prod(shape)
        if not has_array(shape):
            raise WeightsError(f"{title} has sizes {list(shape)}, which no array can have")
        raw = self.view(offset, size, title)
        if element_type is ElementType.string:
            values: Array = _strings(raw, elements, title)
        else:
            needed = (elements * element_type.bits + 7) // 8
            if size != needed:
                raise WeightsError(
                    f"{title} stores {size} bytes, but shape {list(shape)} of {element_type} "
                    f"needs {needed}"
                )
            values = _elements(raw, element_type, elements)
        values = values.reshape(shape)
        values.flags.writeable = False
        return values

    def normal_floats(self, shape: tuple[int, ...], offset: int, size: int, title: str) -> Array:
        """Return a constant of the IR's type nf4 in f32, read-only.

        Raises:
            WeightsError: as `constant`.
        """
        codes = self.constant(ElementType.u4, shape, offset, size, title)
        values: Array = NORMAL_FLOATS[codes.astype(np.uint8)]
        values.flags.writeable = False
        return values


def _open_beside(path: Path) -> tuple[int, int]:
    try:
        return open_beside(path, "weights", ModelFileError)
    except ModelFileError as error:
        raise ModelFileError(f"{error}; or pass the file that is meant as weights=") from None


def _file_content(descriptor: int, size: int, path: Path, limits: ReadLimits) -> Array:
    with os.fdopen(descriptor, "rb") as file:
        if size > limits.weights_bytes:
            raise ModelLimitError(
                f"weights file {str(path)!r} has {size} bytes, more than "
                f"ReadLimits.weights_bytes = {limits.weights_bytes}"
            )
        if size > limits.copied_weights_bytes:
            return np.asarray(np.memmap(file, np.uint8, "r"))
        data = np.empty(size, np.uint8)
        read = 0
        while read < size:
            count = file.readinto(data.data[read:])
            if not count:
                raise WeightsError(
                    f"weights file {str(path)!r} shrank from {size} to {read} bytes while it was "
                    "read"
                )
            read += count
    data.flags.writeable = False
    return data


def _elements(raw: Array, element_type: ElementType, elements: int) -> Array:
    dtype = element_type.dtype
    if element_type.bits < 8:
        return unpack(raw, element_type, elements)
    if element_type is ElementType.boolean:
        # Any byte but 0 is true; only 0 and 1 are legal in NumPy's own representation.
        return raw.view(np.bool_) if not raw.size or raw.max() <= 1 else raw != 0
    if raw.ctypes.data % dtype.alignment:
        raw = raw.copy()
    return raw.view(dtype)


def unpack(raw: Array, element_type: ElementType, elements: int) -> Array:
    """Spread packed elements of 1, 2 or 4 bits to one byte each.

    The first element of a byte lies in its lowest bits, except for u1: in its highest.
    """
    bits = element_type.bits
    if bits == 1:
        return np.unpackbits(raw, count=elements)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes = ((raw[:, None] >> shifts) & ((1 << bits) - 1)).reshape(-1)[:elements]
    if element_type in (ElementType.i4, ElementType.i2):
        half = 1 << (bits - 1)
        signed: Array = (codes.astype(np.int8) ^ half) - half
        return signed.astype(np.int8).astype(element_type.dtype)
    if element_type is ElementType.f4e2m1:
        return codes.astype(np.uint8).view(element_type.dtype)
    return codes.astype(element_type.dtype)


def _strings(raw: Array, elements: int, title: str) -> Array:
    """Read a string tensor: count, then the start and every end as i32, then UTF-8 bytes."""
    words = raw[: raw.size // 4 * 4].copy().view("<i4")
    if not words.size or words[0] != elements or words.size < elements + 2:
        raise WeightsError(f"{title} does not hold {elements} strings")
    ends = words[1 : elements + 2]
    content = raw[4 * (elements + 2) :].tobytes()
    if ends[0] != 0 or (np.diff(ends) < 0).any() or ends[-1] > len(content):
        raise WeightsError(f"{title} has string offsets outside its {len(content)} characters")
    values: np.ndarray[Any, Any] = np.empty(elements, object)
    for i in range(elements):
        values[i] = content[ends[i] : ends[i + 1]].decode("utf-8", "surrogateescape")
    return values
