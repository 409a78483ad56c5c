"""Every operation and attribute variant, as a one-layer IR, against OpenVINO."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pytest

pytest.importorskip("openvino", reason="these tests compare with OpenVINO")

from polydevice.dtype import ElementType
from polydevice.errors import UnsupportedNetworkError
from polydevice.network import Network
from polydevice.ops.op import find_operation
from polydevice.ops.pointwise import BinaryPointwise, UnaryPointwise
from polydevice.testing.inference import shared_core
from polydevice.testing.op_case import OpCase, run_case
from tests.tiers import firsts

from .case import Case, ir_of
from .cases import CASES
from .oracle import oracle
from .tolerances import TOLERANCES

pytestmark = pytest.mark.usefixtures("repeated_sparingly")


def check(given: Case, device: str, *, dynamic: bool) -> None:
    """Both runtimes read the same text, except that sizes may be unknown to ours."""
    network = shared_core().read_network(*ir_of(given, dynamic=dynamic))
    try:
        run_case(op_case(given, network), device, network=network)
    except UnsupportedNetworkError as error:  # sizes that come late may ask for another kernel
        if device == "CPU":
            raise
        pytest.skip(f"{device}: {error}")


def op_case(given: Case, network: Network) -> OpCase:
    """Return what was read as the case of an operation."""
    (node,) = (node for node in network.nodes() if node.name == "op")
    answers = oracle(given)

    def expected(inputs: Sequence[np.ndarray]) -> list[np.ndarray | None]:
        return [
            answer if given.compared is None or i in given.compared else None
            for i, answer in enumerate(answers(inputs))
        ]

    return OpCase(
        node.op,
        [item.value for item in given.inputs],
        expected,
        tolerance_of(given),
        constants=[i for i, item in enumerate(given.inputs) if item.constant],
        element_types={
            i: ElementType.parse(item.kind) for i, item in enumerate(given.inputs) if item.kind
        },
        dynamic=given.dynamic,
        others=given.others,
    )


def tolerance_of(given: Case) -> tuple[float, float] | None:
    if not given.tolerance and any(item.value.dtype == np.float64 for item in given.inputs):
        return TOLERANCES["float64"]
    return TOLERANCES[given.tolerance] if given.tolerance else None


def _firsts(cases: Iterable[Case]) -> dict[tuple[str, int], Case]:
    """Return one case of each operation of each set."""
    return {(each.kind, each.opset): each for each in reversed([*cases])}


def _is_pointwise(given: Case) -> bool:
    op = find_operation(given.kind, f"opset{given.opset}")
    return issubclass(op, (UnaryPointwise, BinaryPointwise))


# What sizes do does not depend on the other attributes. Sizes of pointwise operations come from one
# rule, and one kernel reads them: eight of those stand for all in the quick tier.
DYNAMIC = _firsts(each for each in CASES if each.dynamic and each.feeds)
POINTWISE = [given for given in DYNAMIC.values() if _is_pointwise(given)]
OTHERS = [given for given in DYNAMIC.values() if not _is_pointwise(given)]

FIRSTS = {given.id for given in _firsts(CASES).values()}
# Only CPU plans differently where it knows sizes; a GPU compiles for those of each inference.
ANEW = {(given.kind, given.opset) for given in [*POINTWISE[:8], *OTHERS]}


def _static(given: Case) -> object:
    marks = () if given.id in FIRSTS else pytest.mark.full
    if given.id in FIRSTS and (given.kind, given.opset) in ANEW:
        marks = pytest.mark.full(but_on="CPU")
    return pytest.param(given, id=given.id, marks=marks)


@pytest.mark.parametrize("given", [*map(_static, CASES)])
def test_static_shapes(given: Case, device: str) -> None:
    check(given, device, dynamic=False)


@pytest.mark.parametrize("given", [*firsts(8, POINTWISE), *OTHERS], ids=lambda given: given.id)
def test_dynamic_shapes(given: Case, device: str) -> None:
    check(given, device, dynamic=True)
