"""Tensors as the REST protocol writes them in JSON: lists of numbers or texts."""

from __future__ import annotations

import json
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.runtime.port_info import PortInfo
from polydevice.serve.datatypes import datatype_of
from polydevice.serve.refusal import Reason, RefusedError

PIECE = 1 << 14
"""Elements that are written at a time; other threads run between pieces."""

_IN_BINARY = 'ask for it with "parameters": {"binary_data": true}'

_KINDS: dict[str, set[type]] = {
    "b": {bool},
    "i": {int},
    "u": {int},
    "f": {int, float},
    "V": {int, float},  # bfloat16
    "O": {str},
}


def array_from(data: Any, port: PortInfo, shape: tuple[int, ...]) -> Array:
    """Return the tensor that JSON has as a flat list, or as lists in lists.

    Raises:
        RefusedError: for whatever is not as the protocol says.
    """
    flat = _flat(data, shape)
    dtype = port.dtype
    if not set(map(type, flat)) <= _KINDS[dtype.kind]:
        raise RefusedError(
            Reason.INVALID, f"the data must be of type {datatype_of(port.element_type)}"
        )
    if dtype.kind in "iu" and flat:
        limits = np.iinfo(dtype)
        for value in (min(flat), max(flat)):
            if not limits.min <= value <= limits.max:
                raise RefusedError(
                    Reason.INVALID, f"{str(value)[:40]} is out of the datatype's range"
                )
    try:
        with np.errstate(over="raise"):
            if dtype.kind == "O":
                "".join(flat).encode()
                array: Array = np.empty(len(flat), object)
                array[:] = flat
            else:
                array = np.array(flat, "f8" if dtype.kind in "fV" else dtype).astype(dtype)
    except UnicodeEncodeError:  # half of a pair, such as "\\ud800"
        raise RefusedError(Reason.INVALID, "a text has no form in UTF-8") from None
    except (OverflowError, FloatingPointError):
        raise RefusedError(Reason.INVALID, "a number is out of the datatype's range") from None
    return array.reshape(shape)


def _flat(data: Any, shape: tuple[int, ...]) -> list[Any]:
    if not isinstance(data, list):
        raise RefusedError(Reason.INVALID, "data must be a list, or binary_data_size be given")
    number, level = prod(shape), 0
    while data and isinstance(data[0], list):
        level += 1
        if level >= len(shape) or set(map(type, data)) != {list}:
            raise RefusedError(Reason.INVALID, f"data is nested otherwise than shape {list(shape)}")
        if set(map(len, data)) != {shape[level]} or len(data) != prod(shape[:level]):
            raise RefusedError(Reason.INVALID, f"data is nested otherwise than shape {list(shape)}")
        data = list(chain.from_iterable(data))
    if len(data) != number:
        raise RefusedError(
            Reason.INVALID, f"{len(data)} numbers are given for shape {list(shape)}, not {number}"
        )
    return list(data)


def text_from(name: str, array: Array, room: int) -> str:
    """Return the elements of an output as JSON, without brackets.

    Args:
        name: of the output, for messages.
        array: the output.
        room: characters that it may take; no more than a piece beyond them is ever made.

    Raises:
        RefusedError: it has values that JSON has not, or takes more.
    """
    flat: Array = array.reshape(-1)
    least = sum(map(len, flat)) if array.dtype == object else 2 * flat.size - 1
    pieces: list[str] = []
    size = 0
    for at in range(0, flat.size, PIECE):
        if max(size, least) > room:
            break
        pieces.append(json.dumps(_list(name, flat[at : at + PIECE]), separators=(",", ":"))[1:-1])
        size += len(pieces[-1]) + 1
    if max(size, least) > room:
        raise RefusedError(
            Reason.INVALID,
            f"output {name!r} takes more than the {room} bytes that are left for JSON "
            f"(--json-bytes); {_IN_BINARY}",
        )
    return ",".join(pieces)


def _list(name: str, array: Array) -> list[Any]:
    flat: Array = array.reshape(-1)
    if ElementType.of(array.dtype).is_float:
        flat = flat.astype("f8")
        if not np.isfinite(flat).all():
            raise RefusedError(
                Reason.INVALID,
                f"output {name!r} has values that are not finite, which JSON cannot hold; "
                + _IN_BINARY,
            )
    if array.dtype != object:
        return list(flat.tolist())
    return [each.decode("utf-8", "replace") if isinstance(each, bytes) else each for each in flat]
