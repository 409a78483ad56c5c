"""Node cases whose inputs have unknown sizes: planned with sizes as symbols, in a random order.

Whatever keeps a size longer than the plan that it belongs to (a cache, an operation) meets the
sizes of many other networks here; that a plan fails with symbols, `untraced` says in every test.
"""

from __future__ import annotations

import contextlib
import random
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest

import polydevice.onnx_backend as backend
from polydevice.errors import PolydeviceError
from polydevice.runtime import templates
from polydevice.symbolic_trace import Trace
from polydevice_cpu.plan import compiled
from tests import tiers
from tests.onnx.conformance import missed
from tests.onnx.node_cases import load_cases, operator_of

GROUPS = 12
"""Into how many tests the cases are dealt."""
QUICK = {"CPU": 40, "GPU": 6}
"""How many cases of a group the quick tier takes; on GPU each compiles programs."""
FULL = {"CPU": 80, "GPU": 10}
"""Every operator, and half of the cases, on CPU; the others are of operators that others show."""


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Trace]:
    """Let CPU plan with symbolic sizes from the first shape on, as GPU does; note each plan."""
    tracing, found = templates.tracing, []

    @contextlib.contextmanager
    def noted(*given: Any, **named: Any) -> Iterator[Trace]:
        with tracing(*given, **named) as trace:
            yield trace
        found.append(trace)  # nothing was raised

    monkeypatch.setattr(templates, "tracing", noted)
    monkeypatch.setattr(compiled, "PATIENCE", 0)
    return found


def opened(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model that says no size of its inputs."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    constants = {each.name for each in copy.graph.initializer}
    tensors = [each for each in copy.graph.input if each.type.HasField("tensor_type")]
    for each in tensors:
        if each.name not in constants:
            for axis, dim in enumerate(each.type.tensor_type.shape.dim):
                dim.dim_param = f"{each.name} {axis}"
    for each in copy.graph.output:
        if each.type.HasField("tensor_type"):
            each.type.tensor_type.ClearField("shape")
    del copy.graph.value_info[:]
    return copy


def chosen(group: int, device: str, quick: bool) -> list[Any]:
    """Return the cases of a group: on GPU and in the quick tier, of as many operators as possible.

    Each comes twice, as a network that another one was planned before.
    """
    left_out = missed(device)
    known = [case for case in load_cases() if case.name not in left_out]
    order = random.Random(f"{group} {device}")
    order.shuffle(known)
    by_operator: dict[str, list[Any]] = {}
    for case in known:
        by_operator.setdefault(operator_of(case), []).append(case)
    rounds = max(map(len, by_operator.values()))
    dealt = [cases[k] for k in range(rounds) for cases in by_operator.values() if k < len(cases)]
    mine = dealt[group::GROUPS][: (QUICK if quick else FULL)[device]]
    twice = mine * 2
    order.shuffle(twice)
    return twice


@pytest.mark.usefixtures("repeated_sparingly")
@pytest.mark.parametrize("group", tiers.firsts(3, range(GROUPS)))
def test_plans_with_symbols_are_right_after_those_of_other_networks(
    group: int, device: str, made: list[Trace], request: pytest.FixtureRequest
) -> None:
    refused, wrong = set(), {}
    cases = chosen(group, device, tiers.is_quick(request.config))
    for case in cases:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                prepared = backend.prepare(opened(case.model), device)
            except PolydeviceError:  # the operator wants to know sizes
                refused.add(case.name)
                continue
            if reason := _difference(case, prepared):
                wrong[case.name] = reason
    assert not wrong
    assert len(refused) <= max(len(cases) // 20, 1)
    assert len(made) >= len(cases) // 2


def _difference(case: Any, prepared: backend.PolydeviceRep) -> str:
    from onnx.backend.test.runner import Runner, _normalize_tensor

    for inputs, expected in case.data_sets:
        results = prepared.run([_normalize_tensor(item) for item in inputs])
        try:
            Runner.assert_similar_outputs(
                [_normalize_tensor(item) for item in expected], results, case.rtol, case.atol
            )
        except AssertionError as error:
            return str(error)
    return ""
