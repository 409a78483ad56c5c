"""Every operation that has kernels has cases, and they reach every kernel in every mode.

No device is needed: kernels are asked what they would take on one that can everything.
"""

from __future__ import annotations

import pytest

from tests.gpu.kernel_cases import CASES
from tests.gpu.trials import ABLE, OPERATIONS, PAIRS, candidates, named


def test_every_operation_with_kernels_has_cases():
    assert set(OPERATIONS) == set(CASES)


def test_the_last_kernel_of_each_operation_is_the_reference():
    for op, kernels in OPERATIONS.items():
        assert kernels[-1].name.endswith("_ref"), f"{op.__name__} ends in {kernels[-1].name}"


@pytest.mark.parametrize(("pair", "dtype"), PAIRS, ids=named)
def test_every_kernel_has_a_case_for_each_mode(pair, dtype):
    op, kernel = pair
    found: set[int] = set()
    for target in ABLE:
        for each in candidates(op, kernel, dtype, target):
            found.update(each.modes)
            if len(found) == len(kernel.modes):
                return
    missing = [
        mode
        for number, mode in enumerate(kernel.modes)
        if number not in found and not (dtype == "f4" and mode.get("HALF"))
    ]
    assert not missing, f"no case of {op.__name__} in {dtype} reaches {kernel.name} in {missing}"
