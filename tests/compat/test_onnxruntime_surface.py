"""Every public name of onnxruntime is here or said to be absent, with the same arguments."""

from __future__ import annotations

import importlib.util
import inspect
import sys

import onnxruntime
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as real_state

import polydevice.compat.onnxruntime as ours
from polydevice.compat.onnxruntime.capi import onnxruntime_pybind11_state as our_state
from polydevice.compat.onnxruntime.surface import ABSENT, DIFFERENT, INSTALLED, OURS

ACCIDENTS = {"contextlib"}
"""What `dir(onnxruntime)` lists because it imports it."""

FUNCTIONS = set(dir(type("empty", (), {}))) | set(dir(int)) | set(dir(onnxruntime.ExecutionMode))


def names_of(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


def real_names() -> list[str]:
    """Public names, and the members of public classes as class.name."""
    found = sorted(names_of(onnxruntime) - ACCIDENTS)
    for name in list(found):
        value = getattr(onnxruntime, name)
        if inspect.isclass(value) and name not in ABSENT:
            found += sorted(f"{name}.{member}" for member in names_of(value) - FUNCTIONS)
    return found


def held(name: str) -> bool:
    owner, _, member = name.rpartition(".")
    thing = getattr(ours, owner) if owner else ours
    instance = getattr(thing, "__slots__", ()) or getattr(thing, "__dataclass_fields__", {})
    return hasattr(thing, member) or member in instance or member in vars_of(thing)


def vars_of(thing: object) -> set[str]:
    """What the constructor of a class sets."""
    code = getattr(getattr(thing, "__init__", None), "__code__", None)
    return set(code.co_names) if code is not None else set()


def test_each_name_is_here_or_said_to_be_absent() -> None:
    names = real_names()
    assert names
    wrong = [name for name in names if held(name) == (name in ABSENT)]
    assert not wrong, f"neither here nor in ABSENT, or both: {wrong}"


@pytest.mark.parametrize("name", INSTALLED)
def test_a_package_is_that_of_the_onnxruntime_that_is_installed(name: str) -> None:
    there = importlib.util.find_spec(f"onnxruntime.{name}")
    assert there is not None
    assert getattr(ours, name).__file__ == there.origin


def test_a_package_is_said_to_be_absent_where_none_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in INSTALLED:
        monkeypatch.delitem(sys.modules, f"{ours.__name__}.{name}", raising=False)
        if name in vars(ours):  # asking for it in another way imports it
            monkeypatch.delattr(ours, name)
    monkeypatch.setattr(ours, "__path__", ours.__path__[:1])
    with pytest.raises(AttributeError, match="install onnxruntime beside polydevice"):
        ours.quantization  # noqa: B018


def test_the_tables_name_nothing_that_does_not_exist() -> None:
    """Of the release whose interface this is; an older one lacks some."""
    if onnxruntime.__version__ != ours.__version__:
        pytest.skip(f"the tables are for {ours.__version__}; {onnxruntime.__version__} is here")
    packages = {"backend", "datasets", "quantization", "tools", "training", "transformers"}
    known = set(real_names()) | set(ABSENT if not names_of(onnxruntime) else ()) | packages
    members = {n for n in ABSENT if "." in n and not hasattr(onnxruntime, n.partition(".")[0])}
    assert set(ABSENT) | set(DIFFERENT) | set(OURS) <= known | members
    assert not set(ABSENT) & (set(DIFFERENT) | set(OURS))


def signatures() -> list[str]:
    """Names whose arguments Python knows on both sides."""
    found = []
    for name in real_names():
        if name in ABSENT or not callable(attribute(onnxruntime, name)):
            continue
        if inspect.isclass(attribute(onnxruntime, name)):
            continue
        try:
            inspect.signature(attribute(onnxruntime, name))
        except (TypeError, ValueError):
            continue
        found.append(name)
    return found


def attribute(module: object, name: str) -> object:
    for part in name.split("."):
        module = getattr(module, part)
    return module


@pytest.mark.parametrize("name", signatures())
def test_arguments_have_the_same_names_order_and_defaults(name: str) -> None:
    real, here = (
        [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]
        for function in (attribute(onnxruntime, name), attribute(ours, name))
    )
    if here != real and onnxruntime.__version__ != ours.__version__:
        pytest.skip(f"{name} differs from {ours.__version__} in the {onnxruntime.__version__} here")
    assert here == real


@pytest.mark.parametrize(
    "name",
    [n for n in dir(real_state) if inspect.isclass(getattr(real_state, n))]
    and sorted(
        n
        for n in dir(real_state)
        if inspect.isclass(getattr(real_state, n)) and issubclass(getattr(real_state, n), Exception)
    ),
)
def test_an_exception_is_where_programs_import_it_from(name: str) -> None:
    assert issubclass(getattr(our_state, name), Exception)
    assert not [n for n in our_state.__all__ if not hasattr(our_state, n)]


@pytest.mark.parametrize(
    "name",
    [
        n
        for n in sorted(names_of(onnxruntime))
        if hasattr(getattr(onnxruntime, n), "__members__") and n not in ABSENT
    ],
)
def test_an_enumeration_has_the_same_numbers(name: str) -> None:
    real, here = getattr(onnxruntime, name), getattr(ours, name)
    assert {k: int(v) for k, v in here.__members__.items()} == {
        k: int(v) for k, v in real.__members__.items()
    }
    for member in real.__members__:
        assert str(getattr(here, member)) == str(getattr(real, member))
        assert repr(getattr(here, member)) == repr(getattr(real, member))


def test_options_have_the_same_defaults() -> None:
    for name in ("SessionOptions", "RunOptions"):
        real, here = getattr(onnxruntime, name)(), getattr(ours, name)()
        values = {n for n in names_of(real) if not callable(getattr(real, n))}
        assert values
        for value in values:
            theirs = getattr(real, value)
            mine = getattr(here, value)
            assert repr(mine) == repr(theirs), value
