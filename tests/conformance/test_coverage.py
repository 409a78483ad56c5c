"""Which operations the conformance cases cover; run as a module it prints the table."""

from __future__ import annotations

import sys
from collections import defaultdict

import polydevice.ops  # noqa: F401 - fills the table of operations
from polydevice.ops.op import Op, find_operation, operations

from .cases import CASES

ELSEWHERE = {
    "Parameter": "in every case",
    "Const": "in every case",
    "Result": "in every case",
    "TensorIterator": "test_control_flow.py",
    "Loop": "test_control_flow.py",
    "If": "test_control_flow.py",
    "ReadValue": "test_state.py",
    "Assign": "test_state.py",
    "GroupedMatMul": "OpenVINO reads it but does not compute it; tests/ops",
    "RandomUniform": "other generators give other numbers; tests/ops checks the distribution",
    "Multinomial": "other generators give other numbers; tests/ops checks the distribution",
}
"""Operations without a one-layer case, and where they are tested instead."""


def covered() -> dict[type[Op], list[str]]:
    """Return the names of the cases of each operation class."""
    found: dict[type[Op], list[str]] = defaultdict(list)
    for case in CASES:
        found[find_operation(case.kind, f"opset{case.opset}")].append(case.id)
    return found


def test_every_operation_has_a_case():
    have = covered()
    missing = [
        f"{kind.type} of opset{kind.since[0]}"
        for kind in operations()
        if kind.domain == "opset" and kind not in have and kind.type not in ELSEWHERE
    ]
    assert not missing, f"no conformance case for {', '.join(missing)}"


def main() -> None:
    """Print operation, operation sets and number of cases."""
    have = covered()
    for kind in operations():
        if kind.domain == "opset":
            sets = ", ".join(map(str, kind.since))
            where = len(have.get(kind, [])) or ELSEWHERE.get(kind.type, "none")
            sys.stdout.write(f"{kind.type:40} {sets:12} {where}\n")


if __name__ == "__main__":
    main()
