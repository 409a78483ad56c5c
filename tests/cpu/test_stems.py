"""What an operation needs is found in modules of its stem, and others stay unread."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from polydevice.ops.op import Op
from polydevice.ops.softmax import SoftMax
from polydevice_cpu import implement
from polydevice_cpu.implement import implements, run
from tests.cpu import models

ENTERED = """
import importlib, pkgutil, sys
from polydevice.stems import stems_in
from polydevice_cpu import implement, ops

entered = {}

def noting(enter):
    def wanted(*kinds):
        frame = sys._getframe(1)
        while frame.f_code.co_name != "<module>":  # whose body runs
            frame = frame.f_back
        entered.update(dict.fromkeys(kinds, frame.f_globals["__name__"]))
        return enter(*kinds)
    return wanted

implement.implements, implement.writes = map(noting, (implement.implements, implement.writes))
for each in pkgutil.iter_modules(ops.__path__):
    importlib.import_module(f"polydevice_cpu.ops.{each.name}")
for kind, module in entered.items():
    stems = [each.__module__.rpartition(".")[2] for each in kind.__mro__]
    print(kind.__qualname__, module, *(stem for stem in stems if stem in stems_in(ops.__name__)))
"""

LOWERED = """
from polydevice.stems import import_stems, stem_of, stems_in
from polydevice_cpu import lower

import_stems("polydevice_cpu.lowering", stems_in("polydevice_cpu.lowering"))
for kind, function in lower._TABLE.items():
    stem, module = stem_of(kind), function.__module__.split(".")[2]
    print(kind.__qualname__, module, stem, *lower.ELSEWHERE.get(stem, ()))
"""

USED = """
import sys
from polydevice import Core
with Core() as core:
    core.load_network(core.read_network(sys.argv[1]), "CPU").create_infer_request().infer()
for package in sys.argv[2:]:
    print(sum(name.startswith(package) for name in sys.modules))
"""


def _printed(script: str, *arguments: str, **environment: str) -> str:
    command = [sys.executable, "-c", script, *arguments]
    own = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=own).stdout


def test_every_function_is_where_it_is_looked_for():
    lines = [line.split() for line in _printed(ENTERED).splitlines()]
    assert len(lines) > 220
    for kind, module, *stems in lines:  # without any stem all modules are read
        assert not stems or module.rpartition(".")[2] in stems, f"{kind} in {module}, not {stems}"


def test_every_lowering_is_where_it_is_looked_for():
    lines = [line.split() for line in _printed(LOWERED).splitlines()]
    assert len(lines) > 100
    for kind, module, *stems in lines:
        assert module in stems, f"{kind} in {module}, not {stems}"


NEVER = (
    "polydevice.accuracy",
    "polydevice.readers.onnx.operators.signal",
    "polydevice.readers.onnx.operators.trees",
    "polydevice_cpu.plan.array_steps.control_flow",
    "polydevice_cpu.plan.binding.loops",
    "polydevice_cpu.plan.tables",
    "polydevice_cpu.plan.tails",
)
"""What a network of known sizes, without a loop, has no use for."""


def test_a_network_reads_few_of_them(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(models.residual())
    counted = "polydevice_cpu.ops.", "polydevice_cpu.lowering.", *NEVER
    found = _printed(USED, str(path), *counted, POLYDEVICE_CACHE_DIR=str(tmp_path))
    functions, lowerings, *others = map(int, found.split())
    assert functions < 30
    assert lowerings < 20
    assert dict(zip(NEVER, others, strict=True)) == dict.fromkeys(NEVER, 0)


def test_an_operation_of_somebody_else_is_computed_by_his_function_or_its_base_s():
    class Doubled(Op):
        pass

    class Sharper(SoftMax):
        pass

    @implements(Doubled)
    def doubled(_: Doubled, x):
        return x + x

    x = np.array([[1.0, 2.0, 4.0]], np.float32)
    try:
        np.testing.assert_array_equal(run(Doubled(), [x])[0], [[2.0, 4.0, 8.0]])
        np.testing.assert_allclose(run(Sharper(), [x])[0], [[0.042010, 0.114195, 0.843795]], 1e-4)
    finally:
        del implement._TABLE[Doubled], implement._MODULES[Doubled]


def test_a_module_whose_import_was_interrupted_enters_its_functions_again():
    """Another's are refused, and its name is told; functions may be NumPy's and belong to none."""

    class First(Op):
        pass

    def imported(module):
        names = {"__name__": module, "implements": implements, "First": First}
        exec("implements(First)(abs)", names)

    try:
        imported("interrupted")
        imported("interrupted")
        with pytest.raises(ValueError, match="First is already implemented in interrupted"):
            imported("another")
    finally:
        del implement._TABLE[First], implement._MODULES[First]
