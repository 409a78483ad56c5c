"""The two tiers of the suite: all that it shows, and a quick one in which every feature occurs.

The quick tier leaves out

* tests, or parameters of tests, with the marker ``full``, but on a device that it names: `but_on`;
* of a test with several ``parametrize`` marks, or with a device and one, the combinations that show
  nothing new: it keeps as few as it takes for every entry of every list and every device to occur
  ("each choice", Ammann and Offutt, "Using formal methods to derive test frames in
  category-partition testing", 1994). In `tests/conformance` and in the suite of devices every entry
  occurs on every device,
* `tests/ops` on other devices than CPU: there every operation occurs in `tests/conformance`, every
  kernel in `tests/gpu`, and each case costs compiling one.

It is what runs when no file is named. ``--all`` runs every test in which two entries of its lists,
or a device and one, meet for the first time: most faults take one or two of them (Kuhn, Wallace and
Gallo, "Software fault interactions and implications for software testing", 2004). Without it, a
file that is named runs in every combination. `is_quick` is for tests that choose for themselves
how much they try. In both tiers the longest tests start first, so that none is left alone at the
end.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

_Test = TypeVar("_Test")

_TOLD = "polydevice_quick"
"""Name under which workers find the tier."""

_ON_EVERY_DEVICE = ("conformance", "devices")
"""Folders of tests in which every entry of every list occurs on every device."""


def add_options(parser: pytest.Parser) -> None:
    """Add ``--all`` and ``--quick``."""
    group = parser.getgroup("tiers")
    group.addoption(
        "--all", action="store_true", help="run every test, in every two of its choices"
    )
    group.addoption(
        "--quick",
        action="store_true",
        help="run each feature's first tests (as is done when no file is named)",
    )


def firsts(count: int, values: Iterable[object]) -> list[object]:
    """Return values for `parametrize`, of which the quick tier takes the first `count`.

    For lists whose further entries go the same ways with other numbers.
    """
    return [
        pytest.param(value, marks=() if number < count else pytest.mark.full)
        for number, value in enumerate(values)
    ]


def choose(config: pytest.Config) -> None:
    """Settle the tier; workers of pytest-xdist are told by the process that starts them."""
    if config.option.all and config.option.quick:
        raise pytest.UsageError("--all and --quick exclude each other")
    if hasattr(config, "workerinput"):
        config.option.quick = config.workerinput[_TOLD]
    elif not config.option.all:
        named = config.args_source is not pytest.Config.ArgsSource.TESTPATHS
        config.option.quick = config.option.quick or not named


def tell(worker: WorkerController) -> None:
    """Hand the tier over to a worker of pytest-xdist, which sees the command line alone."""
    worker.workerinput[_TOLD] = is_quick(worker.config)


def is_quick(config: pytest.Config) -> bool:
    """Whether this run is of the quick tier."""
    return bool(config.option.quick)


def is_on_cpu_alone(config: pytest.Config, path: Path) -> bool:
    """Whether the tier leaves out a file's tests on other devices than CPU.

    To be asked before they are made: making 2,950 tests takes each worker 0.3 s.
    """
    return is_quick(config) and path.parent.name == "ops"


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what the tier leaves out; nothing when neither is asked for."""
    quick = is_quick(config)
    if not (quick or config.option.all):
        return
    functions: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if not (quick and _is_full(item)):
            functions[item.nodeid.partition("[")[0]].append(item)
    choices_of = _choices if quick else _pairs
    kept = {item for tests in functions.values() for item in each_choice(tests, choices_of)}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def each_choice(
    tests: Sequence[_Test], choices_of: Callable[[_Test], Iterable[object]]
) -> list[_Test]:
    """Return few tests in which every choice occurs that occurs in any.

    First those that show most: of two lists of four entries four tests are left, not seven.
    """
    choices = [{*choices_of(test)} for test in tests]
    seen: set[object] = set()
    kept: set[int] = set()
    for new in range(max(map(len, choices), default=0), 0, -1):
        for number, each in enumerate(choices):
            if len(each - seen) == new:
                kept.add(number)
                seen |= each
    return [tests[number] for number in sorted(kept)]


def start_longest_first(items: list[pytest.Item]) -> None:
    """Put tests that may take longer than others, by a `timeout` of their own, to the front."""
    items.sort(key=lambda item: -_limit_s(item))


def _limit_s(item: pytest.Item) -> float:
    """Return how long a test may take, where that is more than any other test may; else 0."""
    mark = item.get_closest_marker("timeout")
    limit = float(mark.args[0]) if mark and mark.args else 0.0
    return limit if limit > float(item.config.getini("timeout") or 0) else 0.0


def _is_full(item: pytest.Item) -> bool:
    """Whether a test, on its device, is of the whole suite only."""
    device = item.callspec.params.get("device") if hasattr(item, "callspec") else None
    return any(mark.kwargs.get("but_on", mark) != device for mark in item.iter_markers("full"))


def _choices(item: pytest.Item) -> Iterator[object]:
    """Return which entry of each list of parameters, and which device, a test stands for."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    device = parameters.get("device")
    yield device
    device = device if item.path.parent.name in _ON_EVERY_DEVICE else None
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0] if mark.args else mark.kwargs["argnames"]
        if isinstance(names, str):
            names = [name.strip() for name in names.split(",")]
        # The objects are those of the list, in every combination.
        yield device, *names, *(id(parameters[name]) for name in names)


def _pairs(item: pytest.Item) -> Iterator[object]:
    """Return every choice of a test, and every two."""
    choices = [*_choices(item)]
    return itertools.chain(choices, itertools.combinations(choices, 2))
