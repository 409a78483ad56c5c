"""oneDNN's implementations: the list of those seen, and what lesser processors get."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from polydevice_cpu.onednn.library import library
from tests.implementations import LISTED, read

ROOT = Path(__file__).parents[2]
HEAVY = "Conv or Pool or MatMul or MVN or Norm or LSTM or GRU or RNN or SoftMax or Reduce or Interp"


def test_every_listed_proof_is_a_test():
    """What the list names is there to run; tests that went away take their lines along."""
    proofs = {test for listed in read(LISTED).values() for test in listed.values()}
    assert len(proofs) > 20
    gone = []
    for proof in proofs:
        path, *names = re.sub(r"\[.*\]$", "", proof, flags=re.DOTALL).split("::")
        file = ROOT / path
        text = file.read_text() if file.exists() else ""
        if not all(re.search(rf"\b(def|class) {name}\b", text) for name in names):
            gone.append(proof)
    assert not gone


@pytest.mark.full
@pytest.mark.timeout(600)  # the slice takes half a minute on an idle machine
@pytest.mark.skipif(library() is None, reason="needs oneDNN")
@pytest.mark.parametrize("instructions", ["sse41", "avx2"])
def test_what_a_lesser_processor_gets_is_right(tmp_path, instructions):
    """Other code of oneDNN, with other defects, than this machine's own."""
    found = tmp_path / "found.json"
    limits = [f"--instruction-set={instructions}", f"--implementations={found}"]
    tests = ["tests/cpu/test_rare_shapes.py", "tests/conformance/test_conformance.py"]
    command = [sys.executable, "-m", "pytest", "-q", "--device=CPU", *limits]
    command += ["-k", f"rare_shapes or {HEAVY}", *tests]
    ran = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert ran.returncode == 0, ran.stdout[-4000:]
    ((name, proofs),) = read(found).items()
    assert name.endswith(f", {instructions}")
    assert len(proofs) > 5  # machine code computes some of what it would
    assert "avx512" not in " ".join(proofs)
