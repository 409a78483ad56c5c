"""Journal: what a process that tunes was about to do, so that its death costs one candidate.

``polydevice tune`` runs the tuning in a child process. Before each candidate the child notes which
one it is, and behind it that it is over. When a driver hangs or kills the process, the note without
an end says which candidate it was; the next child leaves it out.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, field
from pathlib import Path

from polydevice.dataclass import dataclass
from polydevice.tuning import TunedLayer

VARIABLE = "POLYDEVICE_TUNING_JOURNAL"
"""Environment variable that names the journal to a child."""


@dataclass
class Journal:
    """Notes in a file, one JSON object a line.

    Attributes:
        path: of the file; None keeps no notes.
        lost: what earlier processes began and never ended.
        done: keys of layers that earlier processes tuned.
        layers: what they found.
    """

    path: Path | None
    lost: set[str] = field(default_factory=set)
    done: set[str] = field(default_factory=set)
    layers: list[TunedLayer] = field(default_factory=list)

    @classmethod
    def of_environment(cls) -> Journal:
        """Return the journal that the environment names, with what stands in it."""
        named = os.environ.get(VARIABLE)
        return cls.read(Path(named)) if named else cls(None)

    @classmethod
    def read(cls, path: Path) -> Journal:
        """Return what stands in a journal; the last line may be cut off."""
        made = cls(path)
        with contextlib.suppress(OSError):
            for line in path.read_text(encoding="utf-8").splitlines():
                with contextlib.suppress(ValueError, TypeError):
                    made._take(json.loads(line))
        return made

    def _take(self, note: dict[str, object]) -> None:
        if "begin" in note:
            self.lost.add(str(note["begin"]))
        elif "end" in note:
            self.lost.discard(str(note["end"]))
        elif "tuned" in note:
            self.done.add(str(note["key"]))
            self.layers.append(TunedLayer(**note["tuned"]))  # type: ignore[arg-type]

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Note that something begins, and behind it that it is over, whatever it raised."""
        self._note({"begin": name})
        try:
            yield
        finally:
            self._note({"end": name})

    def tuned(self, key: str, layer: TunedLayer) -> None:
        """Note what was found for a layer."""
        self._note({"key": key, "tuned": asdict(layer)})

    def _note(self, note: dict[str, object]) -> None:
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(note) + "\n")
