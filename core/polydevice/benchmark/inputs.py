"""Input data for measuring: files the user names, else random values of the right type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import BlobError
from polydevice.runtime.port_info import PortInfo


def make_inputs(
    ports: Mapping[str, PortInfo],
    files: Sequence[str],
    seed: int,
    count: int,
    shapes: Mapping[str, Sequence[Sequence[int]]] | None = None,
) -> list[dict[str, Array]]:
    """Return `count` sets of inputs, so that requests do not all read the same memory.

    Args:
        ports: the inputs.
        files: paths of files or folders, several joined by commas, or ``name:paths``; used in turn.
        seed: of the random values.
        count: number of sets.
        shapes: sizes of the data of an input, used in turn; needed where the network does not say.

    Raises:
        BlobError: for sizes that nothing says, or a file that does not fit.
    """
    by_name: dict[str, list[Path]] = {name: [] for name in ports}
    for item in files:
        name, colon, listed = item.partition(":")
        named = bool(colon) and name in ports
        for path in _paths(listed if named else item):
            for target in [name] if named else ports:
                by_name[target].append(path)
    random = np.random.default_rng(seed)
    sets: list[dict[str, Array]] = []
    for index in range(count):
        one: dict[str, Array] = {}
        for name, port in ports.items():
            paths, sizes = by_name[name], _sizes(port, (shapes or {}).get(name, ()), index)
            one[name] = (
                _from_file(port, sizes, paths[index % len(paths)])
                if paths
                else _random(port, sizes, random)
            )
        sets.append(one)
    return sets


def _paths(listed: str) -> list[Path]:
    """Return the files of a list joined by commas; those of a folder by name."""
    found: list[Path] = []
    for text in [listed] if Path(listed).exists() else listed.split(","):
        path = Path(text)
        if path.is_dir():
            inside = sorted(file for file in path.iterdir() if file.is_file())
            if not inside:
                raise BlobError(f"input folder {text!r} has no files")
            found += inside
        else:
            found.append(path)
    return found


def _sizes(port: PortInfo, shapes: Sequence[Sequence[int]], index: int) -> tuple[int, ...]:
    if shapes:
        return tuple(shapes[index % len(shapes)])
    if port.sizes is None:
        raise BlobError(
            f"input {port.name!r} has the dynamic shape {port.shape}; fix it with -shape, or say "
            "how large the data is with -data_shape"
        )
    return port.sizes


def _random(port: PortInfo, sizes: tuple[int, ...], random: np.random.Generator) -> Array:
    if port.dtype.kind == "f" or port.element_type.is_float:
        # Values as a picture or a normalised signal has them; never zeros, which run faster.
        return np.asarray(random.standard_normal(sizes), port.dtype)
    if port.dtype == np.bool_:
        return random.integers(0, 2, sizes).astype(np.bool_)
    high = 255 if port.dtype.itemsize == 1 and port.dtype.kind == "u" else 100
    return random.integers(0, high, sizes).astype(port.dtype)


def _from_file(port: PortInfo, sizes: tuple[int, ...], path: Path) -> Array:
    if not path.is_file():
        raise BlobError(f"input file {str(path)!r} does not exist")
    if path.suffix == ".npy":
        array = np.load(path, allow_pickle=False)
        return np.ascontiguousarray(np.broadcast_to(array, sizes), port.dtype)
    if path.suffix in (".bin", ".raw"):
        data = np.fromfile(path, port.dtype)
        if data.size != np.prod(sizes):
            raise BlobError(
                f"{str(path)!r} holds {data.size} elements of {port.dtype}; input {port.name!r} "
                f"needs {np.prod(sizes)}"
            )
        return data.reshape(sizes)
    return _picture(port, sizes, path)


def _picture(port: PortInfo, shape: tuple[int, ...], path: Path) -> Array:
    try:
        from PIL import Image
    except ImportError:
        raise BlobError(
            f"reading {str(path)!r} needs Pillow; pip install pillow, or give a .npy file"
        ) from None
    if len(shape) != 4 or "C" not in port.layout:
        raise BlobError(f"input {port.name!r} of shape {port.shape} cannot hold a picture")
    sizes = dict(zip(port.layout, shape))
    with Image.open(path) as image:
        channels = "L" if sizes["C"] == 1 else "RGB"
        resized = image.convert(channels).resize((sizes["W"], sizes["H"]))
        pixels = np.asarray(resized).reshape(sizes["H"], sizes["W"], sizes["C"])
    ordered = pixels if port.layout == "NHWC" else pixels.transpose(2, 0, 1)
    return np.ascontiguousarray(np.broadcast_to(ordered, shape).astype(port.dtype))
