"""ONNX's own node cases: load them, run one on a device, say how it went.

The cases, their inputs, expected outputs and tolerances are those of the installed onnx package;
outputs are compared by its own `Runner.assert_similar_outputs`.
"""

from __future__ import annotations

import functools
import re
import sys
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from tests.kept import kept

PASS = "pass"
HOST = "host"
"""Right, but parts of it ran on another device than the one asked for."""
FAIL = "fail"
UNSUPPORTED = "unsupported"

UNSUPPORTED_ERRORS = ("UnsupportedOperationError", "UnsupportedNetworkError")


@dataclass(frozen=True)
class Outcome:
    """How one case went; `reason` is empty when it passed."""

    name: str
    operator: str
    status: str
    reason: str = ""


@functools.cache
def load_cases() -> tuple[Any, ...]:
    """Return all node cases, by name; making them for the first time takes about five seconds."""
    versions = [onnx.__version__, np.__version__, sys.version]
    return kept("onnx-node-cases", versions, _make_cases)


def _make_cases() -> tuple[Any, ...]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return tuple(sorted(load_model_tests(kind="node"), key=lambda case: case.name))


def operator_of(case: Any) -> str:
    """Return the operator that a case is about.

    An "_expanded" case is written in the operators that define another one; it counts for the
    operator of the case it was expanded from.
    """
    return _operators()[case.name]


@functools.cache
def _operators() -> dict[str, str]:
    cases = load_cases()
    own = {case.name: _single_operator(case) for case in cases}
    found = {}
    for case in cases:
        origin = re.sub(r"(_ver\d+)?_expanded(_ver\d+)?$", "", case.name)
        operator = own[case.name] if origin == case.name else own.get(origin)
        found[case.name] = operator or own[case.name] or case.model.graph.node[0].op_type
    return found


def _single_operator(case: Any) -> str:
    kinds = {
        f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        for node in case.model.graph.node
        if node.op_type != "Constant"
    }
    # What surrounds the operator under test in cases of several nodes.
    main = kinds - {"SequenceConstruct", "Optional", "Identity", "Cast"} or kinds
    return min(main) if len(main) == 1 else ""


def run_case(case: Any, device: str) -> Outcome:
    """Run all data sets of a case on a device."""
    from onnx.backend.test.runner import Runner, _normalize_tensor

    import polydevice.onnx_backend as backend

    operator = operator_of(case)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            prepared = backend.prepare(case.model, device)
            for inputs, expected in case.data_sets:
                results = prepared.run([_normalize_tensor(item) for item in inputs])
                Runner.assert_similar_outputs(
                    [_normalize_tensor(item) for item in expected], results, case.rtol, case.atol
                )
    except Exception as error:  # noqa: BLE001 - whatever a case raises is its outcome
        kind = type(error).__name__
        status = UNSUPPORTED if kind in UNSUPPORTED_ERRORS else FAIL
        return Outcome(case.name, operator, status, f"{kind}: {_short(str(error))}")
    elsewhere = prepared.placed_elsewhere(backend.device_name(device))
    if elsewhere:
        return Outcome(case.name, operator, HOST, f"on another device: {', '.join(elsewhere)}")
    return Outcome(case.name, operator, PASS)


def _short(text: str) -> str:
    """Cut a message to what a table can show."""
    text = re.sub(r"\s+", " ", text).strip()
    found = re.search(r"Output \d+ has incorrect shape.*?\)|Mismatched elements: [^)]*\)", text)
    if found:
        text = found.group()
    return text if len(text) <= 240 else text[:237] + "..."
