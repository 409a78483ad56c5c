"""TuningFile: the choices of kernels in the original's JSON layout, all generations of it.

Version 2, which is written, below versions 1 and the oldest, which are kept as they are::

    {"version_2": {"24": {"CONVOLUTION": {"<parameters>": ["<kernel>", 2]}}},
     "version_1": {"24": {"<hash of the parameters>": ["<kernel>", 2]}}}

The first key is the device's number of compute units. The oldest files are version 1 without that
name around it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock

from polydevice.errors import OptionValueError
from polydevice.files.cache_folder import write_atomically
from polydevice.files.safe_open import read_given
from polydevice_gpu.tuning.layer_key import LayerKey

_V1, _V2 = "version_1", "version_2"
_SIZE_LIMIT_BYTES = 1 << 30

Entry = tuple[str, int]
"""Name of a kernel and number of its mode; -1 is the kernel's default mode."""


class TuningFile:
    """Choices of kernels, in memory and on disk. Usable from many threads and processes."""

    def __init__(self, path: Path | None, content: Mapping[str, Any] | None = None) -> None:
        """Keep choices; see `open` for a file's."""
        self.path = path
        self._lock = threading.Lock()
        self._content = _normalised(content or {})
        self._changes: dict[tuple[str, LayerKey], Entry | None] = {}
        self._stamp: tuple[int, int] | None = None

    @classmethod
    def open(cls, path: Path, *, must_exist: bool) -> TuningFile:
        """Read a file.

        Raises:
            OptionValueError: it is missing though it must exist, or is no tuning file. A file that
                cannot be understood is never overwritten.
        """
        made = cls(path)
        if must_exist or path.exists():
            made._read()
        elif not path.parent.is_dir():
            raise OptionValueError(f"TUNING_FILE={str(path)!r}: the folder does not exist")
        return made

    def find(self, compute_units: int, key: LayerKey) -> Entry | None:
        """Return the choice for a layer; version 2 counts before version 1."""
        units = str(compute_units)
        with self._lock:
            kinds = self._content[_V2].get(units, {})
            kind = kinds.get(key.kind) if isinstance(kinds, dict) else None
            found = _entry(kind.get(key.text)) if isinstance(kind, dict) else None
            if found is None:
                hashes = self._content[_V1].get(units, {})
                found = _entry(hashes.get(key.hash)) if isinstance(hashes, dict) else None
            return found

    def store(self, compute_units: int, key: LayerKey, entry: Entry | None) -> None:
        """Set the choice for a layer, or delete it with None, and write the file at once.

        What other processes wrote meanwhile stays.

        Raises:
            OptionValueError: the file cannot be written.
        """
        with self._lock:
            self._changes[str(compute_units), key] = entry
            if self.path is None:
                self._apply()
                return
            try:
                with FileLock(f"{self.path}.lock", timeout=60):
                    if self._stamp != _stamp(self.path) and self.path.exists():
                        self._read()
                    self._apply()
                    write_atomically(self.path, self.text().encode())
                    self._stamp = _stamp(self.path)
            except OSError as error:
                raise OptionValueError(
                    f"TUNING_FILE={str(self.path)!r} cannot be written: {error.strerror or error}"
                ) from error

    def text(self) -> str:
        """Return the file: indented, but every choice on one line."""
        return "".join(_lines(self._content)) + "\n"

    def __len__(self) -> int:
        """Return the number of choices of all generations."""
        return sum(1 for _ in _leaves(self._content))

    def _apply(self) -> None:
        for (units, key), entry in self._changes.items():
            kind = self._content[_V2].setdefault(units, {}).setdefault(key.kind, {})
            if entry is None:
                kind.pop(key.text, None)
                self._content[_V1].get(units, {}).pop(key.hash, None)
            else:
                kind[key.text] = list(entry)

    def _read(self) -> None:
        assert self.path is not None
        try:
            stamp = _stamp(self.path)
            text = read_given(self.path, "TUNING_FILE", OptionValueError, _SIZE_LIMIT_BYTES)
        except OptionValueError as error:
            raise OptionValueError(
                f"{error}. Make it with TUNING_MODE=TUNING_CREATE or `polydevice tune`"
            ) from error
        try:
            self._content = _normalised(json.loads(text))
            self._stamp = stamp
        except UnicodeDecodeError:  # its message quotes the file
            raise OptionValueError(
                f"TUNING_FILE={str(self.path)!r} is no tuning file: it is no text; delete it or "
                "name another"
            ) from None
        except (ValueError, RecursionError) as error:
            raise OptionValueError(
                f"TUNING_FILE={str(self.path)!r} is no tuning file: {error}; delete it or name "
                "another"
            ) from None


def _normalised(content: Any) -> dict[str, Any]:
    """Return content with both versions; what is in neither is of the oldest kind."""
    if not isinstance(content, dict):
        raise ValueError("its top is not a JSON object")
    found: dict[str, Any] = {_V2: {}, _V1: {}}
    for name in (_V2, _V1):
        section = content.get(name, {})
        if not isinstance(section, dict) or not all(isinstance(v, dict) for v in section.values()):
            raise ValueError(f"{name} does not map compute units to choices")
        found[name] = {units: dict(choices) for units, choices in section.items()}
    for units, choices in content.items():
        if units in found:
            continue
        if not isinstance(choices, dict):
            raise ValueError("an entry does not map layers to choices")
        found[_V1][units] = {**choices, **found[_V1].get(units, {})}
    return found


def _entry(value: Any) -> Entry | None:
    if isinstance(value, (list, tuple)) and len(value) == 2:
        name, mode = value
        if isinstance(name, str) and isinstance(mode, int) and not isinstance(mode, bool):
            return name, mode
    return None


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for child in value.values():
            yield from _leaves(child)
    else:
        yield value


def _lines(value: Any, depth: int = 1) -> Iterator[str]:
    if not isinstance(value, dict) or not value:
        yield json.dumps(value, ensure_ascii=False)
        return
    indent, comma = "    " * depth, ""
    yield "{"
    for name, child in value.items():
        yield f"{comma}\n{indent}{json.dumps(name, ensure_ascii=False)}: "
        yield from _lines(child, depth + 1)
        comma = ","
    yield "\n" + "    " * (depth - 1) + "}"


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        info = path.stat()
    except OSError:
        return None
    return info.st_mtime_ns, info.st_size
