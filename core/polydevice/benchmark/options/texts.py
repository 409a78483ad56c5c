"""The little languages of the options of ``polydevice bench``."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator
from pathlib import Path

from polydevice.errors import OptionValueError
from polydevice.shape import Dim, DimLike

_NAMED = re.compile(r"([^\[\],]*)((?:\[[^\[\]]*\])+),?")


def key_and_value(text: str) -> tuple[str, str]:
    """Split ``KEY=VALUE`` of a command line; raises ArgumentTypeError without a key or a ``=``."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is no KEY=VALUE, such as PERF_COUNT=YES")
    return key, value


def writable_place(option: str, path: Path) -> None:
    """Make the folder of a file that is to be written.

    Raises:
        OptionValueError: it cannot be made, or the file cannot be written there.
    """
    folder = path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionValueError(
            f"{option} {str(path)!r}: the folder {str(folder)!r} cannot be made: {error.strerror}"
        ) from None
    if path.is_dir():
        raise OptionValueError(f"{option} {str(path)!r} is a folder; name a file")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise OptionValueError(f"{option} {str(path)!r} cannot be written: permission denied")


def parse_shapes(text: str, inputs: list[str]) -> dict[str, list[DimLike | None]]:
    """Read ``[1,3]`` (for every input) or ``a[1,3],b[?,2..8]``.

    A size that is not known is ``?`` or ``-1``; ``2..8`` lies between 2 and 8, ``2..`` has no end.

    Raises:
        OptionValueError: saying what the text should look like.
    """
    found: dict[str, list[DimLike | None]] = {}
    for name, shapes in _named(text, inputs, "-shape"):
        if len(shapes) > 1:
            raise OptionValueError(f"-shape {text!r} has several shapes of {name!r}; give one")
        found[name] = [_size(size, text) for size in shapes[0]]
    return found


def parse_static_shapes(text: str, inputs: list[str]) -> dict[str, list[int]]:
    """Read shapes as `parse_shapes`, with numbers only.

    Raises:
        OptionValueError: saying what the text should look like.
    """
    found: dict[str, list[int]] = {}
    for name, sizes in parse_shapes(text, inputs).items():
        found[name] = [size for size in sizes if isinstance(size, int)]
        if len(found[name]) != len(sizes):
            raise OptionValueError(f"-shape {text!r}: sizes must be numbers here")
    return found


def parse_data_shapes(text: str, inputs: list[str]) -> dict[str, list[list[int]]]:
    """Read ``[1,3,224,224][1,3,448,448]``, or with names: the shapes of the data, in turn.

    Raises:
        OptionValueError: saying what the text should look like.
    """
    found: dict[str, list[list[int]]] = {}
    for name, shapes in _named(text, inputs, "-data_shape"):
        if any(not size.isdecimal() for shape in shapes for size in shape):
            raise OptionValueError(f"-data_shape {text!r}: sizes of data are numbers from 0")
        found[name] = [[int(size) for size in shape] for shape in shapes]
    return found


def _named(text: str, inputs: list[str], option: str) -> Iterator[tuple[str, list[list[str]]]]:
    """Yield each input that is meant, and the sizes in its brackets."""
    rest = "".join(text.split())
    while rest:
        match = _NAMED.match(rest)
        if match is None:
            raise OptionValueError(
                f"{option} {text!r} is not legal at {rest!r}; write [1,3,224,224] or name[1,3]"
            )
        name, brackets = match.groups()
        if name and name not in inputs:
            raise OptionValueError(f"{option} names {name!r}; the inputs are {', '.join(inputs)}")
        shapes = [[s for s in part.split(",") if s] for part in brackets[1:-1].split("][")]
        for target in [name] if name else inputs:
            yield target, shapes
        rest = rest[match.end() :]


def _size(text: str, whole: str) -> DimLike | None:
    if text in ("?", "-1"):
        return None
    least, dots, most = text.partition("..")
    if least.isdecimal() and not dots:
        return int(least)
    if dots and all(not end or end.isdecimal() for end in (least, most)):
        low, high = int(least or 0), int(most) if most else None
        if high is None or low <= high:
            return Dim(low, high)
    raise OptionValueError(f"-shape {whole!r}: {text!r} is no size; write 4, ?, or 1..8")


def parse_channels(text: str, known: list[str], option: str) -> dict[str, list[float]]:
    """Read ``[104,117,123]`` (for every input) or ``a[0.5],b[1,2,3]``.

    Raises:
        OptionValueError: for an unknown name, or text of another form.
    """
    found: dict[str, list[float]] = {}
    rest = text.replace(" ", "")
    pattern = re.compile(r"([^\[\],]*)\[([-+0-9.,eE]+)\],?")
    while rest:
        match = pattern.match(rest)
        try:
            values = [float(item) for item in match[2].split(",")] if match else []
        except ValueError:
            values = []
        if match is None or not values:
            raise OptionValueError(
                f"{option} {text!r} is not legal at {rest!r}; write [1,2,3] or name[1,2,3]"
            )
        for target in [match[1]] if match[1] else known:
            if target not in known:
                raise OptionValueError(f"{option} names {target!r}; known: {', '.join(known)}")
            found[target] = values
        rest = rest[match.end() :]
    return found


def parse_names(text: str, known: list[str], option: str) -> dict[str, str]:
    """Read ``a:U8,b:FP16``, ``a[NHWC],b[NC]``, or ``[NHWC]`` for all.

    Raises:
        OptionValueError: for an unknown name, or text of another form.
    """
    everywhere = re.fullmatch(r"\s*\[\s*(\w+)\s*\]\s*", text)
    if everywhere is not None:
        return dict.fromkeys(known, everywhere[1])
    found: dict[str, str] = {}
    for item in filter(None, text.replace(" ", "").split(",")):
        match = re.fullmatch(r"(.+?)(?::|\[)([A-Za-z0-9_]+)\]?", item)
        if match is None:
            raise OptionValueError(
                f"{option} {item!r} is not legal; write name:VALUE or name[VALUE]"
            )
        if match[1] not in known:
            raise OptionValueError(f"{option} names {match[1]!r}; known: {', '.join(known)}")
        found[match[1]] = match[2]
    return found


def parse_values(text: str, devices: list[str], option: str) -> dict[str, str]:
    """Read ``4`` (for every device) or ``CPU:2,GPU:4``; AUTO leaves a number to the device.

    Raises:
        OptionValueError: for a device that is not measured.
    """
    found: dict[str, str] = {}
    for item in filter(None, text.split(",")):
        device, colon, value = item.rpartition(":")
        if colon and device not in devices:
            raise OptionValueError(f"{option} names {device!r}; devices: {', '.join(devices)}")
        for target in [device] if colon else devices:
            found[target] = value
    return found
