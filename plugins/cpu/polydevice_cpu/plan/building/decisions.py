"""Decisions: what was found out about a network's layers when it was planned, for its next shapes.

Which layers one primitive computes together, and in which layout, oneDNN has to be asked for every
step of the way. The answers hardly ever depend on sizes, so a network's next plan assumes them and
asks once per step, for the primitive that runs. Where that turns out otherwise (`Unlike`), the plan
is made again from the beginning, and what was assumed is not assumed any more.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager


class Unlike(Exception):  # noqa: N818 - no error: what is raised is caught where plans are made
    """A layer does not turn out as it did for other sizes; `assumed` is what was relied on."""

    def __init__(self, assumed: Iterable[Hashable]) -> None:
        """Say what must not be assumed any more."""
        super().__init__()
        self.assumed = tuple(assumed)


class Decisions:
    """Of one network; for one thread at a time."""

    def __init__(self) -> None:
        """Begin with nothing to rely on."""
        self._known: dict[Hashable, Hashable] = {}
        self._varying: set[Hashable] = set()
        self._relied_on = True

    def assumed(self, key: Hashable) -> Hashable | None:
        """Return what was decided the last time; None: ask."""
        return self._known.get(key) if self._relied_on else None

    def note(self, key: Hashable, value: Hashable) -> None:
        """Remember a decision, unless it has been different before."""
        if key not in self._varying:
            self._known[key] = value

    def vary(self, keys: Iterable[Hashable]) -> None:
        """Ask every time from now on: the answers depend on sizes."""
        for key in keys:
            self._varying.add(key)
            self._known.pop(key, None)

    @contextmanager
    def asked(self) -> Iterator[None]:
        """Rely on nothing for the time being."""
        self._relied_on = False
        try:
            yield
        finally:
            self._relied_on = True
