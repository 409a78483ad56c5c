"""Which sizes decide what becomes of a primitive: where none has changed, it is the same again."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from operator import itemgetter
from typing import Any
from weakref import ref

from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.descriptor import SymbolicDescriptor
from polydevice_cpu.onednn.primitive import Primitive, SymbolicPrimitive

Numbers = Any
"""Sizes by their places: all of them, or a mapping of some."""


class Known:
    """The primitives that a template's latest plans use, for as long as they do.

    To make one, or to ask oneDNN for one that is there, takes 40 to 60 us with all that was relied
    on. Layers behind a mean over all positions are the same in all plans for as many pictures.
    """

    def __init__(self, places: Mapping[int, int], varying: Container[int]) -> None:
        """Begin with none.

        Args:
            places: thing, by identity → where its sizes are.
            varying: which of them are formulas.
        """
        self._places, self._varying = places, varying
        self._needed: dict[int, Callable[[Numbers], Any]] = {}
        self._made: dict[int, tuple[Any, ref[Primitive]]] = {}

    def get(self, given: SymbolicPrimitive, numbers: Numbers) -> Primitive | None:
        """Return the primitive for these sizes, if the latest plan that has it was for the same.

        Args:
            given: the primitive of formulas.
            numbers: all sizes.
        """
        known = self._made.get(self._places[id(given)])
        if known is None or known[0] != self._sizes(given, numbers):
            return None
        return known[1]()

    def keep(self, given: SymbolicPrimitive, numbers: Numbers, made: Primitive) -> None:
        """Remember a primitive that was made."""
        self._made[self._places[id(given)]] = self._sizes(given, numbers), ref(made)

    def _sizes(self, given: SymbolicPrimitive, numbers: Numbers) -> Any:
        """The sizes that decide what becomes of a primitive, and may change."""
        place = self._places[id(given)]
        needed = self._needed.get(place)
        if needed is None:
            found = {self._places[id(each)] for each in _things(given)} | {place}
            some = [each for each in sorted(found) if each in self._varying]
            needed = self._needed[place] = itemgetter(*some) if some else len
        return needed(numbers)


def _things(given: SymbolicPrimitive) -> list[object]:
    """A primitive, and all whose sizes it is made of or proved with."""
    found: dict[int, object] = {}
    left: list[object] = [given]
    while left:
        thing = left.pop()
        if id(thing) not in found:
            found[id(thing)] = thing
            if isinstance(thing, SymbolicPrimitive):
                left += _parts(thing)
                found.update((id(each), each) for each in thing.claims)
            elif isinstance(thing, SymbolicDescriptor):
                source = thing.source
                if isinstance(source, SymbolicDescriptor):
                    left.append(source)
                elif isinstance(source, tuple):
                    assert isinstance(source[0], SymbolicPrimitive)
                    left.append(source[0].latest)
    return list(found.values())


def _parts(given: SymbolicPrimitive) -> Iterator[object]:
    """The layouts and primitives of formulas that a primitive is made of or proved with."""
    named: list[object] = []
    for argument in given.arguments:
        if isinstance(argument, Attributes):
            named += argument.operands
        elif isinstance(argument, tuple):
            named += argument
        else:
            named.append(argument)
    for known in (given.layouts, given.opaque, given.answers):
        named += known.values()
    for claim in given.claims:
        named.append(claim.base)
        for link in claim.links:
            named += link.descriptors
    return (each for each in named if isinstance(each, (SymbolicPrimitive, SymbolicDescriptor)))
