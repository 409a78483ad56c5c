"""What a reproduction needs beside its network: values of every type, and users' operations."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.errors import ModelFileError
from polydevice.network import Network
from polydevice.ops.op import Op
from polydevice.ops.python_operation import PythonOperation

_TYPES = "element types"
"""Name of the array that says which arrays are of a type that NumPy's files do not know."""


def write_values(path: Path, values: Mapping[str, Array]) -> None:
    """Write arrays into an .npz file, without pickles: texts, and floats of 8 and 16 bits too.

    Raises:
        OSError: the file cannot be written.
    """
    stored: dict[str, Array] = {}
    types: dict[str, str] = {}
    for name, value in values.items():
        if value.dtype.kind == "O":
            types[name] = ElementType.string.value
            stored[name] = np.asarray(json.dumps([str(text) for text in value.reshape(-1)]))
            stored[f"{name} sizes"] = np.asarray(value.shape, np.int64)
        elif value.dtype.kind == "V":
            types[name] = ElementType.of(value.dtype).value
            stored[name] = np.ascontiguousarray(value).view(f"u{value.dtype.itemsize}")
        else:
            stored[name] = value
    np.savez(path, **stored, **{_TYPES: np.asarray(json.dumps(types))})  # type: ignore[arg-type]


def read_values(path: Path) -> dict[str, Array]:
    """Read what `write_values` wrote."""
    with np.load(path, allow_pickle=False) as loaded:
        found = {name: loaded[name] for name in loaded.files}
    for name, kind in json.loads(str(found.pop(_TYPES))).items():
        if kind == ElementType.string.value:
            texts = np.empty(tuple(found.pop(f"{name} sizes")), object)
            texts.reshape(-1)[:] = json.loads(str(found[name]))
            found[name] = texts
        else:
            found[name] = found[name].view(ElementType(kind).dtype)
    return found


def keep_operations(folder: Path, network: Network) -> list[str]:
    """Copy the modules that define operations of others than polydevice; return their names.

    Raises:
        OSError: a file cannot be copied.
    """
    names: dict[str, None] = {}
    for op in _operations(network):
        defined = op.definition.function if isinstance(op, PythonOperation) else type(op)
        name = defined.__module__
        if name.partition(".")[0] == "polydevice" or name in names:
            continue
        names[name] = None
        try:
            file = inspect.getsourcefile(defined)
        except TypeError:
            file = None
        if file is not None and Path(file).is_file():
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, folder / f"{name}.py")
    return list(names)


def _operations(network: Network) -> Iterator[Op]:
    for node in network.nodes():
        yield node.op
        if node.op.has_bodies:
            for value in vars(node.op).values():
                if isinstance(value, Network):
                    yield from _operations(value)


def import_operations(folder: Path, names: list[str]) -> None:
    """Define operations by importing the modules that `keep_operations` names, or their copies.

    Raises:
        ModelFileError: a module is neither installed nor in the folder.
    """
    for name in names:
        copy = folder / f"{name}.py"
        if name != "__main__":
            try:
                importlib.import_module(name)
                continue
            except ImportError:
                pass
        spec = importlib.util.spec_from_file_location(f"operations of {name}", copy)
        if spec is None or spec.loader is None or not copy.is_file():
            raise ModelFileError(
                f"the module {name!r} defines operations of this network; install it, or put its "
                f"file at {str(copy)!r}"
            )
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
