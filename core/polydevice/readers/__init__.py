"""Readers: model files to networks. The format is told from the content, not from the name."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polydevice.errors import ModelFileError, PluginError
from polydevice.isolation import contained

if TYPE_CHECKING:
    from polydevice.network import Network, PathLike
    from polydevice.node import Evaluate
    from polydevice.registry import Registry

Reader = Callable[[Any, Any], "Network"]


def read(
    model: PathLike | bytes,
    weights: PathLike | bytes | None = None,
    *,
    evaluate: Evaluate | None = None,
    registry: Registry | None = None,
) -> Network:
    """Read a model file, or the content of one, of any known format.

    Args:
        model: path or content.
        weights: IR only: path or content of the constants.
        evaluate: computes shape arithmetic while shapes are inferred.
        registry: plugins whose hooks add formats and, when the model has operations that are not
            known, operations.

    Raises:
        ModelFileError: the file is missing, empty or not a file.
        ModelError: (a subclass) the content is not valid.
    """
    import polydevice.ops  # noqa: F401 - fills the table of operations

    if registry is not None:
        third_party = _third_party_reader(model, registry)
        if third_party is not None:
            with contained(f"the reader of {Path(os.fspath(model)).suffix} files"):  # type: ignore[arg-type]
                return third_party(model, weights)
    if _looks_like_xml(model):
        from polydevice.readers.ir import read_ir

        seen = 0 if registry is None else registry.definitions
        define = None if registry is None else partial(registry.define_operations, seen)
        return read_ir(model, weights, evaluate=evaluate, define=define)
    from polydevice.readers.onnx import read_onnx

    work = partial(read_onnx, model, evaluate=evaluate)
    return work() if registry is None else registry.with_operations(work)


def _head(model: PathLike | bytes) -> bytes:
    if isinstance(model, (bytes, bytearray, memoryview)):
        head = bytes(model[:256])
        if not head:
            raise ModelFileError("the model is empty: 0 bytes were given")
        return head
    path = Path(model)
    if not path.exists():
        raise ModelFileError(f"model file {os.fspath(path)!r} does not exist")
    if not path.is_file():
        raise ModelFileError(f"model {os.fspath(path)!r} is not a regular file")
    with path.open("rb") as file:
        head = file.read(256)
    if not head:
        raise ModelFileError(f"model file {os.fspath(path)!r} is empty")
    return head


def _looks_like_xml(model: PathLike | bytes) -> bool:
    head = _head(model)
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return text.startswith(b"<") or head.startswith((b"\xff\xfe", b"\xfe\xff"))


def _third_party_reader(model: PathLike | bytes, registry: Registry) -> Reader | None:
    if isinstance(model, (bytes, bytearray, memoryview)):
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
