"""What tests of wrong IR share."""

from __future__ import annotations

import pytest

from polydevice.readers.ir import read_ir
from polydevice.readers.limits import ReadLimits

from .test_ir_reader import WEIGHTS

ONE = [(0, "FP32", (2, 3))]
OUT = [(1, "FP32", (2, 3))]


def refused(error, match, topology, weights=WEIGHTS, **limits):
    """Check that reading raises exactly this class of error."""
    with pytest.raises(error, match=match) as caught:
        read_ir(topology, weights, ReadLimits(**limits))
    assert type(caught.value) is error
