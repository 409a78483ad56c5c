"""Inputs on which the accuracy guard compares: the user's, else random ones that resemble data."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import OptionValueError, PolydeviceError, nearest
from polydevice.network import Network
from polydevice.node import Node
from polydevice.ops.arithmetic import Subtract
from polydevice.ops.quantize import FakeQuantize
from polydevice.shape import Shape

Sample = dict[str, Array]

_KEY = "ACCURACY_GUARD_INPUTS"
_KINDS = ("noise", "smooth", "edges", "fading")
KINDS = len(_KINDS)
"""Random inputs that one seed makes."""

_SUFFIXES = (".npz", ".npy")
_PICTURE = 16.0
"""Means that are subtracted from an input and are larger than this are those of bytes."""


def given_samples(network: Network, path: str) -> list[Sample]:
    """Read the user's inputs.

    Args:
        network: whose inputs they are.
        path: of an .npz or .npy file, or of a folder with some.

    Raises:
        OptionValueError: naming the file and what it lacks.
    """
    return [_read(network, file) for file in _files(path)]


def digest(path: str) -> str:
    """Return what the content of the user's inputs amounts to; empty for none.

    Raises:
        OptionValueError: there are no such files.
    """
    if not path:
        return ""
    made = hashlib.sha256()
    for file in _files(path):
        made.update(file.name.encode() + b"\0")
        with _reading(file):
            made.update(hashlib.sha256(file.read_bytes()).digest())
    return made.hexdigest()


def _files(path: str) -> list[Path]:
    given = Path(path)
    with _reading(given):
        inside = sorted(given.iterdir()) if given.is_dir() else [given]
        files = [file for file in inside if file.suffix in _SUFFIXES and file.is_file()]
    if not files:
        raise OptionValueError(
            f"{_KEY}={path!r} has no inputs; legal: an .npz or .npy file, or a folder with some"
        )
    return files


@contextlib.contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Name the file in what goes wrong when it is read, damaged files included."""
    try:
        yield
    except PolydeviceError:
        raise
    except Exception as error:  # noqa: BLE001 - NumPy and archives raise any; the file is at fault
        why = str(error) or type(error).__name__
        raise OptionValueError(f"{_KEY}: {str(file)!r} cannot be read: {why}") from None


def _read(network: Network, file: Path) -> Sample:
    names = [node.name for node in network.parameters]
    with _reading(file), file.open("rb") as opened:  # NumPy does not close a damaged archive
        loaded = np.load(opened, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            if len(names) != 1:
                raise OptionValueError(
                    f"{_KEY}: {str(file)!r} is one array; {network.name!r} has the inputs "
                    f"{', '.join(names)}: give an .npz file with one array for each"
                )
            return {names[0]: loaded}
        with loaded:
            found = {name: loaded[name] for name in loaded.files}
    missing = [name for name in names if name not in found]
    if missing:
        raise OptionValueError(
            f"{_KEY}: {str(file)!r} has no array {missing[0]!r}, which is an input of "
            f"{network.name!r}; it has {', '.join(found) or 'none'}.{nearest(missing[0], found)}"
        )
    return {name: found[name] for name in names}


def random_samples(network: Network, seed: int = 0) -> list[Sample]:
    """Make random samples: noise, a smooth signal, sharp edges, and noise that fades away.

    Where a FakeQuantize says the range of an input, values lie in it; where a mean of pictures is
    subtracted, they are those of bytes. Unknown first sizes are 1.

    Raises:
        OptionValueError: an input has other unknown sizes, or holds no numbers.
    """
    random = np.random.default_rng(seed)
    return [
        {node.name: _values(network, node, kind, random) for node in network.parameters}
        for kind in _KINDS
    ]


def _values(network: Network, node: Node, kind: str, random: np.random.Generator) -> Array:
    sizes, element_type = _sizes(node), node.output.element_type
    if node.output.desc.kind != "tensor" or element_type.value in ("string", "dynamic"):
        raise _not_known(node, f"holds no numbers, but {node.output.desc}")
    dtype = element_type.dtype
    if element_type.value == "boolean":
        return random.integers(0, 2, sizes).astype(dtype)
    if not element_type.is_float:
        most = 256 if element_type.value == "u8" else min(100, 1 << (element_type.bits - 1))
        return random.integers(0, most, sizes).astype(dtype)
    values = random.standard_normal(sizes)
    if kind in ("smooth", "edges"):
        waves = _smooth(sizes, random)
        values = 0.1 * values + (waves if kind == "smooth" else np.sign(waves))
    elif kind == "fading" and sizes:
        values = values * np.geomspace(1, 1e-2, sizes[-1] or 1)[: sizes[-1]]
    known = _range(network, node)
    if known is not None:
        low, high = known
        spread = np.clip(values / 6 + 0.5, 0, 1)  # three standard deviations to each side
        values = low + (high - low) * spread
    return np.asarray(values).astype(dtype)


def _smooth(sizes: tuple[int, ...], random: np.random.Generator) -> Array:
    """A sum of few waves along every axis, from -3 to 3: most of pictures and sounds is that."""
    total = np.zeros(sizes)
    for axis, size in enumerate(sizes):
        places = np.arange(size).reshape([-1 if a == axis else 1 for a in range(len(sizes))])
        for _ in range(3):
            waves, phase = random.uniform(0.3, 4), random.uniform(0, 2 * np.pi)
            total = total + np.sin(2 * np.pi * waves * places / max(size, 1) + phase)
    largest = np.abs(total).max(initial=0)
    return np.asarray(3 * total / largest if largest else total)


def _range(network: Network, node: Node) -> tuple[float, float] | None:
    """Return the range that the model says of an input; None where it says none."""
    for reader, _ in network.consumers().get(node.output, []):
        known = [port.desc.constant for port in reader.inputs]
        if isinstance(reader.op, FakeQuantize) and known[1] is not None and known[2] is not None:
            if known[1].size and known[2].size:
                return float(known[1].min()), float(known[2].max())
        elif isinstance(reader.op, Subtract) and _mean(known[1]) > _PICTURE:
            return 0.0, 255.0
    return None


def _mean(constant: Array | None) -> float:
    return 0.0 if constant is None else float(np.abs(constant).max(initial=0))


def _sizes(node: Node) -> tuple[int, ...]:
    shape = node.output.shape
    if shape is not None and shape.is_static:
        return shape.static
    if shape is None or not len(shape) or not Shape(shape[1:]).is_static:
        raise _not_known(node, f"has the shape {shape}, which is not known")
    return (1, *Shape(shape[1:]).static)


def _not_known(node: Node, why: str) -> OptionValueError:
    return OptionValueError(
        f"ACCURACY_GUARD: input {node.name!r} {why}; give the guard inputs to compare on with "
        f"{_KEY}, or give the network its shapes with reshape()"
    )
