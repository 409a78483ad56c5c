"""TuningFile: the choices of kernels in the original's JSON layout, all generations of it.

Version 2, which is written, below versions 1 and the oldest, which are kept as they are, and beside
them what the choices of version 2 took when they were timed::

    {"version_2": {"24": {"CONVOLUTION": {"<parameters>": ["<kernel>", 2]}}},
     "version_1": {"24": {"<hash of the parameters>": ["<kernel>", 2]}},
     "time_ns": {"24": {"CONVOLUTION": {"<parameters>": 18000}}}}

The first key is the device's number of compute units. The oldest files are version 1 without that
name around it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from polydevice.errors import OptionValueError
from polydevice.files.cache_folder import write_atomically
from polydevice.files.safe_open import read_given
from polydevice.locks import Lock
from polydevice_gpu.tuning.layer_key import LayerKey, part_of, sizes_of

_V1, _V2, _TIMES = "version_1", "version_2", "time_ns"
_SIZE_LIMIT_BYTES = 1 << 30

Entry = tuple[str, int]
"""Name of a kernel and number of its mode; -1 is the kernel's default mode."""

Parts = dict[tuple[str, str], set[tuple[int, ...]]]
"""Kind of a layer and `part_of` its key → `sizes_of` the keys that have these."""


class TuningFile:
    """Choices of kernels, in memory and on disk. Usable from many threads and processes."""

    def __init__(self, path: Path | None, content: Mapping[str, Any] | None = None) -> None:
        """Keep choices; see `open` for a file's."""
        self.path = path
        self._lock = Lock()
        self._content = _normalised(content or {})
        self._parts: dict[str, Parts] = {}
        self._changes: dict[tuple[str, LayerKey], tuple[Entry | None, int]] = {}
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

    @property
    def is_empty(self) -> bool:
        """Whether it has no choice."""
        with self._lock:
            return not self._content[_V1] and not self._content[_V2]

    def find(self, compute_units: int, key: LayerKey) -> Entry | None:
        """Return the choice for a layer; version 2 counts before version 1."""
        units = str(compute_units)
        with self._lock:
            found = _entry(self._content[_V2].get(units, {}).get(key.kind, {}).get(key.text))
            older = self._content[_V1].get(units)  # whose names take long to compute
            return found or (_entry(older.get(key.hash)) if older else None)

    def parts(self, compute_units: int) -> Parts | None:
        """Return the sizes of all layers, the same object while none changes.

        None where only hashes of some are known.
        """
        units = str(compute_units)
        with self._lock:
            if self._content[_V1].get(units):
                return None
            if units not in self._parts:
                kinds = self._content[_V2].get(units, {}).items()
                self._parts[units] = parts_of(
                    (kind, text) for kind, texts in kinds for text in texts
                )
            return self._parts[units]

    def store(
        self, compute_units: int, key: LayerKey, entry: Entry | None, time_ns: int = 0
    ) -> None:
        """Set the choice for a layer, or delete it with None, and write the file at once.

        What other processes wrote meanwhile stays.

        Args:
            compute_units: of the device.
            key: the layer.
            entry: the choice.
            time_ns: what it took; 0 where that is not known, which leaves the time of an entry
                that stays the same.

        Raises:
            OptionValueError: the file cannot be written.
        """
        with self._lock:
            self._changes[str(compute_units), key] = entry, time_ns
            if self.path is None:
                self._apply()
                return
            with _writing(self.path):
                if self._stamp != _stamp(self.path) and self.path.exists():
                    self._read()
                self._apply()
                write_atomically(self.path, self.text().encode())
                self._stamp = _stamp(self.path)

    @classmethod
    def merge(cls, paths: Sequence[Path], output: Path) -> TuningFile:
        """Write the choices of several files into one, and return it.

        Of a layer that several have, the choice that took less time stays; one of known time
        counts before those of unknown time, and else the one of the file that is named first.
        All that files say about other devices and implementations stays.

        Args:
            paths: the files.
            output: where to write; one of them, or a path where nothing is yet.

        Raises:
            OptionValueError: a file is missing or no tuning file, or `output` exists and is none
                of them, or it cannot be written. Then nothing is written.
        """
        if output.exists() and not any(p.exists() and output.samefile(p) for p in paths):
            raise OptionValueError(
                f"{str(output)!r} exists and is none of the files to merge; name it with them to "
                "keep its choices, or delete it"
            )
        if not output.parent.is_dir():
            raise OptionValueError(f"{str(output)!r}: the folder does not exist")
        merged = cls(output)
        with _writing(output):
            for path in paths:
                merged.take(cls.open(path, must_exist=True))
            write_atomically(output, merged.text().encode())
        return merged

    def take(self, other: TuningFile) -> None:
        """Add another's choices in memory; of a layer that both have, the faster one stays."""
        self._parts.clear()
        for units, hashes in other._content[_V1].items():
            own = self._content[_V1].setdefault(units, {})
            own.update({key: value for key, value in hashes.items() if key not in own})
        for units, kinds in other._content[_V2].items():
            own_kinds = self._content[_V2].setdefault(units, {})
            for kind, entries in kinds.items():
                own = own_kinds.setdefault(kind, {})
                for text, value in entries.items():
                    time_ns = other._time(units, kind, text)
                    if text not in own or 0 < time_ns < (self._time(units, kind, text) or math.inf):
                        own[text] = value
                        self._set_time(units, kind, text, time_ns)

    def choices(self, compute_units: int) -> Iterator[tuple[str, str, Entry, int]]:
        """Yield (kind, text, choice, its time or 0) of the layers of version 2."""
        units = str(compute_units)
        for kind, entries in self._content[_V2].get(units, {}).items():
            for text, value in entries.items():
                if (entry := _entry(value)) is not None:
                    yield kind, text, entry, self._time(units, kind, text)

    def text(self) -> str:
        """Return the file: indented, but every choice on one line."""
        written = {name: part for name, part in self._content.items() if name != _TIMES or part}
        return "".join(_lines(written)) + "\n"

    def __len__(self) -> int:
        """Return the number of choices of all generations."""
        return sum(1 for name in (_V2, _V1) for _ in _leaves(self._content[name]))

    def _apply(self) -> None:
        self._parts.clear()
        for (units, key), (entry, time_ns) in self._changes.items():
            kind = self._content[_V2].setdefault(units, {}).setdefault(key.kind, {})
            before = kind.get(key.text)
            if entry is not None:
                kind[key.text] = list(entry)
            else:
                kind.pop(key.text, None)
                self._content[_V1].get(units, {}).pop(key.hash, None)
            if time_ns or entry is None or _entry(before) != entry:
                self._set_time(units, key.kind, key.text, time_ns)

    def _time(self, units: str, kind: str, text: str) -> int:
        """Return what a choice of version 2 took, in nanoseconds; 0 where that is not known."""
        value = self._content[_TIMES].get(units, {}).get(kind, {}).get(text)
        return value if isinstance(value, int) and value > 0 else 0

    def _set_time(self, units: str, kind: str, text: str, time_ns: int) -> None:
        times = self._content[_TIMES]
        if time_ns > 0:
            times.setdefault(units, {}).setdefault(kind, {})[text] = time_ns
        else:
            times.get(units, {}).get(kind, {}).pop(text, None)

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
            self._parts.clear()
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


def parts_of(keys: Iterable[tuple[str, str]]) -> Parts:
    """Return the sizes of the layers of these kinds and texts."""
    found: Parts = {}
    for kind, text in keys:
        found.setdefault((kind, part_of(text)), set()).add(sizes_of(text))
    return found


def _normalised(content: Any) -> dict[str, Any]:
    """Return content with both versions; what is in neither is of the oldest kind."""
    if not isinstance(content, dict):
        raise ValueError("its top is not a JSON object")
    found: dict[str, Any] = {_V2: {}, _V1: {}, _TIMES: {}}
    for name in found:
        section = content.get(name, {})
        if not isinstance(section, dict) or not all(isinstance(v, dict) for v in section.values()):
            raise ValueError(f"{name} does not map compute units to choices")
        found[name] = {units: dict(choices) for units, choices in section.items()}
        kinds = (kind for choices in section.values() for kind in choices.values())
        if name != _V1 and not all(isinstance(kind, dict) for kind in kinds):
            raise ValueError(f"{name} does not map kinds of layers to layers")
    for units, choices in content.items():
        if units in found:
            continue
        if not isinstance(choices, dict):
            raise ValueError("an entry does not map layers to choices")
        found[_V1][units] = {**choices, **found[_V1].get(units, {})}
    return found


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Keep other processes from writing a file, and say what makes writing impossible."""
    from filelock import FileLock  # 0.01 s, for who writes alone

    try:
        with FileLock(f"{path}.lock", timeout=60):
            yield
    except OSError as error:
        raise OptionValueError(
            f"TUNING_FILE={str(path)!r} cannot be written: {error.strerror or error}"
        ) from error


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
