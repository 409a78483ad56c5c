"""Our dataclass behaves as Python's own does."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import field
from typing import Any, ClassVar

import numpy as np
import pytest

from polydevice.dataclass import dataclass

KINDS = [{"frozen": True}, {}, {"frozen": True, "eq": False}, {"eq": False}]


def classes(decorate: Any, **kind: bool) -> tuple[type, type]:
    """A class with defaults of all kinds, and one that adds to it."""

    @decorate(**kind)
    class Base:
        """First."""

        a: int
        b: list[int] = field(default_factory=list)
        c: str = field(default="c", repr=False)
        d: float = field(default=0.5, compare=False)

    @decorate(**kind)
    class More(Base):
        """Second."""

        e: tuple[int, ...] = ()

        def __post_init__(self) -> None:
            object.__setattr__(self, "e", (*self.e, 7))

    return Base, More


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("number", [0, 1])
def test_as_pythons_own(kind, number) -> None:
    ours, theirs = (classes(made, **kind)[number] for made in (dataclass, dataclasses.dataclass))
    given: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((1,), {}),
        ((1, [2]), {"c": "x"}),
        ((1, [2], "c"), {"d": 2.5}),
        ((3,), {"b": []}),
    ]
    for args, named in given:
        mine, other = ours(*args, **named), theirs(*args, **named)
        assert repr(mine) == repr(other)
        assert dataclasses.asdict(mine) == dataclasses.asdict(other)
        assert dataclasses.replace(mine, a=9).a == 9
        assert vars(copy.copy(mine)) == vars(mine)
        for again, named_again in given:
            alike = mine == ours(*again, **named_again)
            assert alike == (other == theirs(*again, **named_again))
        assert mine != other
    assert ours.__match_args__ == theirs.__match_args__
    with pytest.raises(TypeError):
        ours()
    for cls in (ours, theirs):
        one = cls(1)
        if kind.get("frozen"):
            for name in ("a", "unknown"):
                with pytest.raises(dataclasses.FrozenInstanceError, match=name):
                    setattr(one, name, 2)
            with pytest.raises(dataclasses.FrozenInstanceError, match="'a'"):
                del one.a
        else:
            one.a = 2
            assert one == one
            del one.a
            assert not hasattr(one, "a")


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_hashes(kind) -> None:
    for made in (dataclass, dataclasses.dataclass):

        @made(**kind)
        class Point:
            """Two numbers."""

            x: int
            y: int = 0

        one, same = Point(1), Point(1)
        if kind.get("frozen") and kind.get("eq", True):
            assert len({one, same, Point(1, 2)}) == 2
        elif kind.get("eq", True):
            with pytest.raises(TypeError, match="unhashable"):
                hash(one)
        else:
            assert len({one, same}) == 2


def test_what_a_class_writes_itself_stays() -> None:
    for made in (dataclass, dataclasses.dataclass):

        @made(frozen=True)
        class Own:
            """Compares and shows itself."""

            x: int

            def __eq__(self, other: object) -> bool:
                return True

            def __hash__(self) -> int:
                return 5

            def __repr__(self) -> str:
                return "own"

        assert Own(1) == Own(2)
        assert hash(Own(1)) == 5
        assert repr(Own(1)) == "own"

        @made(frozen=True)
        class Half:
            """Compares itself; is hashed by its fields all the same."""

            x: int

            def __eq__(self, other: object) -> bool:
                return True

        assert hash(Half(1)) == hash(Half(1))
        assert hash(Half(1)) != hash(Half(2))


def test_without_fields_and_undecorated_subclasses() -> None:
    @dataclass(frozen=True)
    class Empty:
        """Nothing."""

    class Plain(Empty):
        """Not decorated."""

    assert Empty() == Empty()
    assert Empty() != Plain()
    assert hash(Empty()) == hash(Empty())
    assert repr(Plain()).endswith("Plain()")


def test_pythons_own_adds_to_ours() -> None:
    """As who writes an operation of his own may."""
    base, _ = classes(dataclass, frozen=True)

    @dataclasses.dataclass(frozen=True)
    class Third(base):  # type: ignore[valid-type,misc]
        """Frozen, as its base."""

        z: int = 3

    assert Third(1) == Third(1)
    assert "z=3" in repr(Third(1))
    with pytest.raises(dataclasses.FrozenInstanceError):
        Third(1).z = 4
    with pytest.raises(TypeError, match="non-frozen dataclass from a frozen one"):
        dataclasses.dataclass(type("Loose", (base,), {}))


def test_one_field_that_is_an_array() -> None:
    """It compares as a tuple of one: what is the very same is equal, without being looked at."""

    @dataclass(frozen=True)
    class Holder:
        """An array."""

        array: np.ndarray[Any, Any]

    array = np.arange(3)
    assert Holder(array) == Holder(array)


@dataclass(frozen=True)
class Nested:
    """Of a module, so that it can be pickled."""

    name: str
    inner: Nested | None = None


def test_pickles_and_recursion() -> None:
    nested = Nested("a", Nested("b"))
    assert pickle.loads(pickle.dumps(nested)) == nested
    loop = Nested("a")
    object.__setattr__(loop, "inner", loop)
    assert "..." in repr(loop)


def test_what_init_does_not_set_is_refused_too() -> None:
    for made in (dataclass, dataclasses.dataclass):

        @made(frozen=True)
        class Sized:
            """With a number of the class, and one that nobody gives."""

            kind: ClassVar[str] = "sized"
            size: int
            unit: int = field(default=3, init=False)
            parts: list[int] = field(default_factory=list, init=False)

        one = Sized(1)
        assert one.parts == []
        for name in ("kind", "unit", "parts"):
            with pytest.raises(dataclasses.FrozenInstanceError, match=name):
                setattr(one, name, 4)
        assert (one.kind, one.unit) == ("sized", 3)


def test_ours_adds_to_pythons_own() -> None:
    """As where operations of somebody share attributes."""
    ours, _ = classes(dataclass, frozen=True)

    @dataclasses.dataclass(frozen=True)
    class Shared(ours):  # type: ignore[valid-type,misc]
        """Frozen, as its base."""

        y: int = 2

    @dataclass(frozen=True)
    class Third(Shared):
        """One more field."""

        z: int = 3

    assert Third(1) == Third(1) != Third(1, z=4)
    assert hash(Third(1, ())) == hash(Third(1, ()))
    assert "y=2, z=3" in repr(Third(1))
    with pytest.raises(dataclasses.FrozenInstanceError):
        Third(1).z = 4


@pytest.mark.parametrize("of_base", [dataclass, dataclasses.dataclass])
@pytest.mark.parametrize("is_frozen", [False, True])
def test_frozen_ones_and_others_do_not_mix(of_base, is_frozen) -> None:
    @of_base(frozen=is_frozen)
    class Base:
        """Of one kind."""

        x: int

    with pytest.raises(TypeError, match="cannot inherit"):
        dataclass(frozen=not is_frozen)(type("Other", (Base,), {"__annotations__": {"y": int}}))


def test_without_eq_it_compares_as_its_base_does() -> None:
    for made in (dataclass, dataclasses.dataclass):

        @made(frozen=True)
        class Base:
            """Compared by its field."""

            x: int

        @made(frozen=True, eq=False)
        class More(Base):
            """Not compared by its own."""

            y: int

        assert More(1, 2) == More(1, 3) != More(2, 2)
        assert hash(More(1, 2)) == hash(More(1, 3))


def test_what_describes_a_class_can_be_copied() -> None:
    """As cloudpickle does with classes of a script."""
    params = Nested.__dataclass_params__  # type: ignore[attr-defined]
    for again in (copy.copy(params), pickle.loads(pickle.dumps(params))):
        assert (again.frozen, again.eq, again.order) == (True, True, False)
