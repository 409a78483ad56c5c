"""Every operation that has kernels has cases, and they reach every kernel in every mode.

No device is needed: kernels are asked what they would take on one that can everything.
"""

from __future__ import annotations

import pytest

from polydevice.ops.op import operations
from polydevice_gpu.kernels.pointwise import expression
from tests.gpu.kernel_cases import CASES
from tests.gpu.trials import ABLE, OPERATIONS, PAIRS, candidates, named


def test_every_operation_with_kernels_has_cases():
    assert set(OPERATIONS) == set(CASES)


def test_the_last_kernel_of_each_operation_is_the_reference():
    for op, kernels in OPERATIONS.items():
        assert kernels[-1].name.endswith("_ref"), f"{op.__name__} ends in {kernels[-1].name}"


def test_expressions_stand_in_files_called_as_those_of_their_operations():
    ours = [op for op in operations() if op.__module__.startswith("polydevice.ops.")]
    found = {op: form for op in ours if (form := expression.find(op)) is not None}
    assert len(found) > 60
    for op, form in found.items():
        stem = op.__module__.rpartition(".")[2]
        assert form.place.startswith(f"polydevice_gpu/kernels/pointwise/{stem}.py:"), op


IN_F32_AND_F16 = [
    pytest.param(*each, marks=() if each[1] == "f4" else pytest.mark.full) for each in PAIRS
]


@pytest.mark.parametrize(("pair", "dtype"), IN_F32_AND_F16, ids=named)
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
