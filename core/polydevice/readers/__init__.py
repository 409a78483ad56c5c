"""Readers: model files to networks. The format is told from the content, not from the name."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Union

from polydevice.bounds import computing_ahead
from polydevice.errors import ModelFileError, ModelLimitError, PluginError
from polydevice.files.safe_open import open_given
from polydevice.isolation import contained
from polydevice.memory_budget import give_back
from polydevice.readers.limits import ReadLimits

if TYPE_CHECKING:
    from polydevice.devices.registry import Registry
    from polydevice.network import Network, PathLike
    from polydevice.node import Evaluate

Reader = Callable[[Any, Any], "Network"]

ModelSource = Union["PathLike", bytes, bytearray, memoryview, "IO[bytes]"]
"""A path, the content, or a file opened in binary mode."""


def read(
    model: ModelSource,
    weights: ModelSource | None = None,
    *,
    evaluate: Evaluate | None = None,
    registry: Registry | None = None,
    limits: ReadLimits | None = None,
) -> Network:
    """Read a model file, or the content of one, of any known format.

    Args:
        model: path, content, or a file opened in binary mode, which is read to its end.
        weights: IR only: the constants, likewise.
        evaluate: computes shape arithmetic while shapes are inferred.
        registry: plugins whose hooks add formats and, when the model has operations that are not
            known, operations.
        limits: bounds on what the file may ask for; None takes the defaults.

    Raises:
        ModelFileError: the file is missing, empty or not a file.
        ModelError: (a subclass) the content is not valid.
    """
    with computing_ahead():
        network = _read(model, weights, evaluate, registry, limits)
    give_back(network.constant_bytes)
    return network


def _read(
    model: ModelSource,
    weights: ModelSource | None,
    evaluate: Evaluate | None,
    registry: Registry | None,
    limits: ReadLimits | None,
) -> Network:
    import polydevice.ops  # noqa: F401 - fills the table of operations

    model = _path_or_bytes(model, "model")
    weights = None if weights is None else _path_or_bytes(weights, "weights")
    if registry is not None:
        third_party = _third_party_reader(model, registry)
        if third_party is not None:
            with contained(f"the reader of {Path(os.fspath(model)).suffix} files"):  # type: ignore[arg-type]
                return third_party(model, weights)
    if _looks_like_xml(model):
        from polydevice.readers.ir import read_ir

        seen = 0 if registry is None else registry.definitions
        define = None if registry is None else partial(registry.define_operations, seen)
        return read_ir(model, weights, limits, evaluate=evaluate, define=define)
    from polydevice.readers.onnx import read_onnx

    work = partial(read_onnx, model, evaluate=evaluate, limits=limits)
    return work() if registry is None else registry.with_operations(work)


def _path_or_bytes(source: ModelSource, what: str) -> PathLike | bytes:
    """Return content as bytes, whatever it came in, and a path as it is.

    Raises:
        ModelFileError: it is neither, or a file that is not in binary mode or cannot be read.
        ModelLimitError: a file that has more bytes than are read.
    """
    if isinstance(source, (bytes, str, os.PathLike)):
        return source
    if isinstance(source, (bytearray, memoryview)):
        return bytes(source)
    if not hasattr(source, "read"):
        raise ModelFileError(
            f"{what} of type {type(source).__name__} cannot be read; give a path, bytes, or a file "
            "opened in binary mode"
        )
    limit = ReadLimits().onnx_bytes
    try:
        content = source.read(limit + 1)
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{what}: {source!r} cannot be read: {error}") from error
    if not isinstance(content, bytes):
        raise ModelFileError(f"{what}: {source!r} gives text; open it in binary mode, 'rb'")
    if len(content) > limit:
        raise ModelLimitError(f"{what}: {source!r} has more than {limit} bytes; give its path")
    return content


def _head(model: PathLike | bytes) -> bytes:
    if isinstance(model, bytes):
        head = model[:256]
        if not head:
            raise ModelFileError("the model is empty: 0 bytes were given")
        return head
    path = Path(model)
    descriptor, _ = open_given(path, "model file", ModelFileError)
    with os.fdopen(descriptor, "rb") as file:
        head = file.read(256)
    if not head:
        raise ModelFileError(f"model file {os.fspath(path)!r} is empty")
    return head


def _looks_like_xml(model: PathLike | bytes) -> bool:
    head = _head(model)
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return text.startswith(b"<") or head.startswith((b"\xff\xfe", b"\xfe\xff"))


def _third_party_reader(model: PathLike | bytes, registry: Registry) -> Reader | None:
    if isinstance(model, bytes):
        return None
    suffix = Path(model).suffix.lower()
    if suffix in (".xml", ".onnx"):
        return None
    registry.load_all()
    found: list[tuple[Any, Any]] = []
    for _ in registry.call("register_readers", register=lambda *pair: found.append(pair)):
        pass
    fitting = [reader for name, reader in list(found) if name == suffix and callable(reader)]
    if len(fitting) > 1:
        modules = ", ".join(str(getattr(reader, "__module__", reader)) for reader in fitting)
        raise PluginError(f"several plugins read {suffix} files ({modules}); uninstall all but one")
    return fitting[0] if fitting else None
