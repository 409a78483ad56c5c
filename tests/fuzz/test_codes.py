"""Codes of oneDNN's, tried in processes of their own: a short run, and what it must see."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from polydevice_cpu.onednn.library import library
from tests.fuzz import codes

pytestmark = pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine")

MISBEHAVING = """
import os, signal
from tests.fuzz import codes

case = next(case for number in range(9) if (case := codes.drawn(1, number, ["f32"])))
code = next(iter(codes.codes_of(case.made)))
print([codes.outcome(case, code)])
for failure in (
    lambda claim: os.kill(os.getpid(), signal.SIGSEGV),
    lambda claim: "it writes outside the result",
    lambda claim: "1 of 2 results are wrong",
    lambda claim: 1 / 0,
):
    codes.failure = failure
    found = codes.outcome(case, code)
    print([found, codes.is_of_memory(found)])
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process of one thread, which may fork."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *arguments],
        env=environment, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("kinds", ["u8,s8", "f32"])
def test_code_that_may_run_keeps_to_its_memory(kinds):
    ran = run("-m", "tests.fuzz.codes", "--seed", "2", "--count", "12", "--kinds", kinds)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "may run" in ran.stdout
    assert ran.stdout.endswith("seed 2, 12 cases\n")


def test_what_is_wrong_is_seen():
    ran = run("-c", MISBEHAVING)
    assert ran.stdout.splitlines() == [
        "['']",
        "['ends the process (signal 11)', True]",
        "['it writes outside the result', True]",
        "['1 of 2 results are wrong', False]",
        "['raises an exception', False]",
    ], ran.stderr


def test_a_case_is_the_same_for_the_same_numbers():
    texts = [case and case.text for case in (codes.drawn(5, n, ["u8"]) for n in range(30))]
    again = [case and case.text for case in (codes.drawn(5, n, ["u8"]) for n in range(30))]
    assert texts == again
    assert len(set(texts)) > 20
