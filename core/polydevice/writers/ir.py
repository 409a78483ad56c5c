"""Writer of OpenVINO IR v11: a Network → a topology (.xml) and its weights (.bin)."""

from __future__ import annotations

import io
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from polydevice.arguments import path
from polydevice.errors import ModelFileError
from polydevice.network import Network
from polydevice.writers.obstacles import check_writable
from polydevice.writers.prepare import prepared_copy
from polydevice.writers.topology import topology


def write_ir(
    network: Network,
    xml_path: str | os.PathLike[str],
    bin_path: str | os.PathLike[str] | None = None,
) -> None:
    """Write a network as IR v11 files, which appear whole or not at all, and both or neither.

    Where one cannot take its place, what was there before stays, the pair as it was.

    Precisions and layouts set on inputs and outputs become Convert and Transpose operations.

    Args:
        network: what to write; it is not changed.
        xml_path: file for the topology.
        bin_path: file for the constants; by default the same name with the suffix ``.bin``.

    Raises:
        UnsupportedOperationError: IR cannot express some operations; all are listed.
        ModelFileError: a file cannot be written, both paths are the same, or one is a device.
    """
    xml = path(xml_path, "the file for the topology", ModelFileError)
    weights = xml.with_suffix(".bin")
    if bin_path is not None:
        weights = path(bin_path, "the file for the constants", ModelFileError)
    if xml.absolute() == weights.absolute():
        raise ModelFileError(f"topology and weights cannot both be written to {str(xml)!r}")
    for file in (xml, weights):
        if file.exists() and not (file.is_file() or file.is_dir()):
            # A new file would take the place of /dev/null, for every program there is.
            raise ModelFileError(f"{str(file)!r} cannot be written: it is no regular file")
    prepared = prepared_copy(network)
    check_writable(prepared)
    with _written(xml) as xml_part, _written(weights) as weights_part:
        with _failing(xml), xml_part.open("xb") as xml_file:
            with _failing(weights), weights_part.open("xb") as weights_file:
                content = topology(prepared, weights_file)
                _flush(weights_file)
            xml_file.write(content)
            _flush(xml_file)
        # The topology, which names the other's offsets, takes its place last.
        with _restored(weights):
            with _failing(weights):
                weights_part.replace(weights)
            with _failing(xml):
                xml_part.replace(xml)


def ir_bytes(network: Network) -> tuple[bytes, bytes]:
    """Return a network as the contents of IR v11 files: (topology, weights).

    Raises:
        UnsupportedOperationError: IR cannot express some operations; all are listed.
    """
    prepared = prepared_copy(network)
    check_writable(prepared)
    weights = io.BytesIO()
    return topology(prepared, weights), weights.getvalue()


@contextmanager
def _written(path: Path) -> Iterator[Path]:
    """Name a new file beside `path`, to take its place; it is gone at the end if it did not."""
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        yield part
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def _restored(path: Path) -> Iterator[None]:
    """Put back what was at `path` when the block fails."""
    with _written(path) as before:
        with suppress(OSError):  # there was nothing, or the file system has no links
            os.link(path, before)
        was_there = path.exists()
        try:
            yield
        except ModelFileError:
            with suppress(OSError):
                if before.exists():
                    before.replace(path)
                elif not was_there:
                    path.unlink(missing_ok=True)
            raise


@contextmanager
def _failing(path: Path) -> Iterator[None]:
    """Say which file could not be written."""
    try:
        yield
    except OSError as error:
        raise ModelFileError(f"{str(path)!r} cannot be written: {error.strerror}") from error


def _flush(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())
