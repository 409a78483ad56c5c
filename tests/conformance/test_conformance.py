"""Every operation and attribute variant, as a one-layer IR, against OpenVINO."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pytest

pytest.importorskip("openvino", reason="these tests compare with OpenVINO")

from polydevice import Core
from polydevice.errors import UnsupportedNetworkError

from .case import Case, ir_of
from .cases import CASES
from .oracle import CaseKey, openvino_answer
from .tolerances import differences


@pytest.fixture(scope="module")
def core() -> Iterator[Core]:
    with Core() as made:
        yield made


def answers(core: Core, device: str, given: Case, *, dynamic: bool) -> list[np.ndarray]:
    network = core.read_network(*ir_of(given, dynamic=dynamic))
    try:
        executable = core.load_network(network, device)
        outputs = executable.infer(given.feeds)  # sizes that come now may ask for another kernel
    except UnsupportedNetworkError as error:
        pytest.skip(f"{device}: {error}")
    found = [np.array(outputs[name]) for name in network.outputs]
    executable.close()
    return found


def _firsts(cases: Iterable[Case]) -> dict[tuple[str, int], Case]:
    """Return one case of each operation of each set."""
    return {(each.kind, each.opset): each for each in reversed([*cases])}


FIRSTS = {given.id for given in _firsts(CASES).values()}
STATIC = [
    pytest.param(given, id=given.id, marks=() if given.id in FIRSTS else pytest.mark.full)
    for given in CASES
]


@pytest.mark.parametrize("given", STATIC)
def test_static_shapes(given: Case, device: str, core: Core) -> None:
    check(given, answers(core, device, given, dynamic=False))


# What sizes do does not depend on the other attributes.
DYNAMIC = _firsts(each for each in CASES if each.dynamic and each.feeds).values()


@pytest.mark.parametrize("given", DYNAMIC, ids=lambda given: given.id)
def test_dynamic_shapes(given: Case, device: str, core: Core) -> None:
    check(given, answers(core, device, given, dynamic=True))


def check(given: Case, found: list[np.ndarray]) -> None:
    expected = openvino_answer(CaseKey(given))
    assert len(found) == len(expected)
    wanted = range(len(expected)) if given.compared is None else given.compared
    problems = [
        f"output {i}: {text}"
        for i in wanted
        if (text := differences(found[i], expected[i], given.tolerance))
    ]
    assert not problems, f"{given.id} {dict(given.attributes)}: " + "; ".join(problems)
