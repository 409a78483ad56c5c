"""What tests of tuning have."""

from __future__ import annotations

from pathlib import Path

import pytest

from polydevice import Core
from polydevice_gpu.kernels.kernel import Choice
from polydevice_gpu.tuning.candidate_runner import CandidateRunner, Outcome


@pytest.fixture
def core(opencl, few_candidates):
    with Core() as core:
        yield core


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "tuning.json"


@pytest.fixture
def timed(monkeypatch) -> list[str]:
    """Names of the layers that are timed; timing itself takes a made-up time, so that it is quick.

    The last candidate that gives the right result is the fastest.
    """
    names: list[str] = []
    real = CandidateRunner.run
    speed = [1_000_000]

    def run(
        self: CandidateRunner, choice: Choice, *, timed: bool = True, **_: float
    ) -> Outcome | None:
        if not timed:
            names.append(self._node.name)
        outcome = real(self, choice, timed=False)
        speed[0] -= 1
        return outcome and Outcome(outcome.outputs, speed[0])

    monkeypatch.setattr(CandidateRunner, "run", run)
    return names
