"""Reading a model file without the data of its large tensors, which is left where it is.

Protobuf would copy it twice, once into the message and once into the tensor's bytes. The fields
that lead to it are those of onnx.proto; the encoding is protobuf's (protobuf.dev, "Encoding"): each
field is a number that says which field it is and of what kind, and its content.
"""

from __future__ import annotations

import os
import weakref
from typing import BinaryIO

from polydevice.errors import ModelFileError
from polydevice.files.stored import LEAST_BYTES, StoredBuffer, StoredFile

_MODEL, _GRAPH, _NODE, _ATTRIBUTE, _TENSOR = range(5)
_INNER = {
    (_MODEL, 7): _GRAPH,
    (_GRAPH, 1): _NODE,
    (_GRAPH, 5): _TENSOR,
    (_NODE, 5): _ATTRIBUTE,
    (_ATTRIBUTE, 5): _TENSOR,
    (_ATTRIBUTE, 6): _GRAPH,
}
"""Message and number of a field → the message that it holds."""

_RAW_DATA = (_TENSOR, 9)
_VARINT, _BYTES = 0, 2
_FIXED = {1: 8, 5: 4}
"""Kinds of content → bytes, but for numbers and for what says its size."""

_DEPTH = 64
_MOST_FIELDS = 1 << 18
"""That are looked at one by one, some 5 us each; files that have more are protobuf's own. A
detector of 5 MB with rounded weights has 2,783: nodes of less than 4 KB are stepped over."""

_SECRET_BYTES, _NUMBER_BYTES = 16, 8


class _StrangeError(Exception):
    """What protobuf shall judge."""


class LargeTensors:
    """The data of a file's large tensors, by what stands for it in the message.

    That is a secret of this reading and a number, so that no file can hold it.
    """

    def __init__(self, file: StoredFile, descriptor: int) -> None:
        """Begin with none.

        Args:
            file: the model file.
            descriptor: it, open until all tensors are read.
        """
        self._file = file
        self._descriptor = descriptor
        self._secret = os.urandom(_SECRET_BYTES)
        self._places: list[tuple[int, int]] = []
        self._fields = 0
        self._made: weakref.WeakValueDictionary[int, StoredBuffer] = weakref.WeakValueDictionary()

    def message(self) -> bytes | None:
        """Return the file without the data of its large tensors; None where protobuf shall read it.

        That is where it is malformed, or has very many fields.
        """
        size = os.fstat(self._descriptor).st_size
        with open(self._descriptor, "rb", buffering=1 << 16, closefd=False) as source:
            try:
                return self._content(source, _MODEL, size, 0)
            except _StrangeError:
                return None

    def data(self, raw: bytes) -> bytes | StoredBuffer:
        """Return a tensor's data: what stands in the message, or the file's in its place.

        Raises:
            ModelFileError: the file became shorter.
        """
        if len(raw) != _SECRET_BYTES + _NUMBER_BYTES or not raw.startswith(self._secret):
            return raw
        number = int.from_bytes(raw[_SECRET_BYTES:], "little")
        made = self._made.get(number)  # a body is read several times
        if made is None:
            try:
                made = StoredBuffer.read(self._file, self._descriptor, *self._places[number])
            except OSError as error:
                raise ModelFileError(f"cannot read {self._file.title}: {error.strerror}") from error
            if made is None:
                raise ModelFileError(f"{self._file.title} became shorter while it was read")
            self._made[number] = made
        return made

    def _content(self, source: BinaryIO, kind: int, end: int, depth: int) -> bytes:
        """Return a message that ends at `end`, where `source` then stands."""
        if depth > _DEPTH:
            raise _StrangeError
        kept = []
        start = source.tell()  # of what is kept as it is
        while source.tell() < end:
            self._fields += 1
            if self._fields > _MOST_FIELDS:
                raise _StrangeError
            tag = _varint(source)
            form, field = tag & 7, (kind, tag >> 3)
            if form == _VARINT:
                _varint(source)
                continue
            tagged = source.tell()
            size = _varint(source) if form == _BYTES else _FIXED.get(form, end)
            content = source.tell()
            following = content + size
            if following > end:
                raise _StrangeError
            if size >= LEAST_BYTES and (field in _INNER or field == _RAW_DATA):
                kept.append(_part(source, start, tagged))
                if field == _RAW_DATA:
                    new = self._secret + len(self._places).to_bytes(_NUMBER_BYTES, "little")
                    self._places.append((content, size))
                else:
                    source.seek(content)
                    new = self._content(source, _INNER[field], following, depth + 1)
                kept += [_encoded(len(new)), new]
                start = following
            source.seek(following)
        if source.tell() != end:
            raise _StrangeError
        kept.append(_part(source, start, end))
        return b"".join(kept)


def _varint(source: BinaryIO) -> int:
    """Read a number: seven bits a byte, lowest first; all bytes but the last have the eighth."""
    value = shift = 0
    while shift < 64:
        byte = source.read(1)
        if not byte:
            break
        value |= (byte[0] & 127) << shift
        if byte[0] < 128:
            return value
        shift += 7
    raise _StrangeError


def _encoded(value: int) -> bytes:
    """Return a number as `_varint` reads it."""
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    return bytes([*made, value])


def _part(source: BinaryIO, start: int, end: int) -> bytes:
    source.seek(start)
    return source.read(end - start)
