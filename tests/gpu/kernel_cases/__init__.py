"""Small odd cases for every operation that has GPU kernels, one module per family.

Sizes are chosen to miss every tile, vector and work-group: primes, one more, one less. The answers
are OpenVINO's, ONNX Runtime's or NumPy's. A module adds cases with a table `CASES`: the operation
that kernels are declared for → a function that makes its cases of a NumPy type ("f4", "f2").
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

from polydevice.ops.op import Op
from polydevice.testing.op_case import OpCase
from tests.gpu.kernel_cases.data import Cases, Data
from tests.seeds import seeded


def _collect() -> dict[type[Op], Cases]:
    found: dict[type[Op], Cases] = {}
    for module in pkgutil.iter_modules(__path__):
        if module.name == "data":
            continue
        table = importlib.import_module(f"{__name__}.{module.name}").CASES
        assert not found.keys() & table.keys(), f"{module.name} repeats operations of another"
        found |= table
    return found


CASES = _collect()


def cases_of(op: type[Op], dtype: str) -> Iterator[OpCase]:
    """Make the cases of an operation, with the same numbers in every run of the tests."""
    return CASES[op](Data(seeded(f"{op.__name__} {dtype}"), dtype))
