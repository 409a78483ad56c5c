"""``polydevice tune``: files of the original, and candidates that crash, hang or lose."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from polydevice.cli import main
from polydevice.commands import tune
from polydevice.tuning import TunedLayer
from polydevice.tuning.journal import Journal
from polydevice_gpu.kernels.kernel import Choice
from polydevice_gpu.tuning.candidate_runner import CandidateRunner, Outcome
from polydevice_gpu.tuning.tuning_file import TuningFile
from tests.cpu.models import build
from tests.gpu.tuning.network import LAYERS, MODEL, choices, entries, load


def _shipped() -> Path:
    openvino = pytest.importorskip("openvino")
    found = Path(openvino.__file__).parent / "libs" / "cache.json"
    if not found.exists():
        pytest.skip("this OpenVINO brings no cache.json")
    return found


@pytest.mark.full
def test_the_originals_file_survives_extension(core, path, timed) -> None:
    original = _shipped().read_text()
    path.write_text(original)
    file = TuningFile.open(path, must_exist=True)
    assert len(file) > 100_000
    load(core, path, "TUNING_CREATE")
    assert len(timed) == LAYERS
    before, after = json.loads(original), json.loads(path.read_text())
    assert len(TuningFile.open(path, must_exist=True)) == len(file) + LAYERS
    for version in ("version_1", "version_2"):
        for units, kinds in before[version].items():
            for name, value in kinds.items():
                kept = after[version][units][name]
                assert kept == value if version == "version_1" else value.items() <= kept.items()


FEW = """
import polydevice_gpu.tuning.tuner as tuner

every = tuner.candidates
tuner.candidates = lambda *of: [*(found := every(*of))[:4], *found[4:][-1:]]
"""
"""What `few_candidates` does, for a program."""


@pytest.mark.full
@pytest.mark.usefixtures("needs_gpu")
def test_command(path, tmp_path) -> None:
    (tmp_path / "sitecustomize.py").write_text(FEW)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    (tmp_path / "model.onnx").write_bytes(MODEL)
    command = [
        sys.executable, "-m", "polydevice", "tune", str(tmp_path / "model.onnx"),
        "--file", str(path), "--budget", "500",
    ]  # fmt: skip
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=500,
                          env=environment)  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(rows) == LAYERS
    assert all(float(row[2]) >= float(row[4]) > 0 for row in rows)
    assert len(entries(path)) == LAYERS
    again = subprocess.run(command, check=False, capture_output=True, text=True, timeout=500,
                           env=environment)  # fmt: skip
    assert again.returncode == 0 and again.stdout == ""
    assert "no layer was left to tune" in again.stderr


@pytest.mark.usefixtures("needs_gpu")
def test_sizes_that_are_not_known_are_asked_for(path, tmp_path, monkeypatch, capsys) -> None:
    """In the process that another one watches, which gets the sizes of the command line."""
    nodes = [("Relu", ["x"], ["y"], {})]
    (tmp_path / "model.onnx").write_bytes(build(nodes, {"x": ("n", 3, "h")}, ("y",), {}))
    monkeypatch.setattr("polydevice.tuning.supervisor.end_with_parent", lambda: None)
    monkeypatch.setenv("POLYDEVICE_TUNING_JOURNAL", str(tmp_path / "journal"))
    words = ["tune", str(tmp_path / "model.onnx"), "--file", str(path)]
    assert main(words) == 1
    said = capsys.readouterr().err
    assert "the batch is not known and is set to 1" in said
    assert "layers are tuned for known sizes; give those of x[1,3,?] with --shape" in said
    assert main([*words, "--shape", "[2,3,8]"]) == 0
    options = argparse.Namespace(batch=4, shape="[2,3,8]", file="f", device="GPU", weights=None,
                                 again=False, check=False, config=[], model="m.onnx")  # fmt: skip
    assert {"--batch=4", "--shape=[2,3,8]"} < set(tune._arguments_of_tune(options))


FAULTS = """
import os, signal, time
import polydevice_gpu.tuning.candidate_runner as runner

real, calls = runner.CandidateRunner.run, []

def run(self, choice, **how):
    calls.append(choice)
    if len(calls) == 4 and "crash" not in open({notes!r}).read():
        open({notes!r}, "a").write("crash ")
        os.kill(os.getpid(), signal.SIGKILL)
    if len(calls) == 6 and "hang" not in open({notes!r}).read():
        open({notes!r}, "a").write("hang ")
        time.sleep(1000)
    return real(self, choice, **how)

runner.CandidateRunner.run = run
"""


@pytest.mark.usefixtures("needs_gpu")
@pytest.mark.full
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_crash_and_a_hang_cost_one_candidate_each(path, tmp_path) -> None:
    """The first child is killed and the second hangs; the third ends, with all layers."""
    notes = tmp_path / "notes"
    notes.touch()
    (tmp_path / "sitecustomize.py").write_text(FEW + FAULTS.format(notes=str(notes)))
    (tmp_path / "model.onnx").write_bytes(MODEL)
    command = [
        sys.executable, "-m", "polydevice", "tune", str(tmp_path / "model.onnx"),
        "--file", str(path), "--limit", "12",
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=500,
                          env=environment)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert notes.read_text().split() == ["crash", "hang"]
    assert done.stderr.count("hung or killed its process; left out") >= 2
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(rows) == LAYERS and len(entries(path)) == LAYERS


@pytest.mark.full
def test_a_winner_that_is_not_faster_when_timed_in_turn_loses(core, path, monkeypatch) -> None:
    """Once fast by chance: in the rounds behind, all take the same time."""
    default = choices(core.load_network(core.read_network(MODEL), "GPU"))
    real = CandidateRunner.run
    seen: dict[tuple[str, str], int] = {}

    def run(
        self: CandidateRunner, choice: Choice, *, timed: bool = True, **_: float
    ) -> Outcome | None:
        outcome = real(self, choice, timed=False)
        name = self._node.name, str(choice)
        seen[name] = seen.get(name, 0) + timed
        lucky = seen[name] == 1 and choice != self._node.choice
        return outcome and Outcome(outcome.outputs, 5 if lucky else 10)

    monkeypatch.setattr(CandidateRunner, "run", run)
    assert choices(load(core, path, "TUNING_CREATE")) == default


def test_a_journal_knows_what_was_begun_and_not_ended(tmp_path) -> None:
    journal = Journal.read(tmp_path / "journal")
    with journal.step("a"):
        pass
    with pytest.raises(ValueError, match="x"), journal.step("b"):
        raise ValueError("x")
    journal.tuned("k", TunedLayer("layer", 1, 2, candidates=3, best="k[1]", best_ns=5))
    with (tmp_path / "journal").open("a") as file:
        file.write('{"begin": "c"}\n{"end": "a"}\nno json\n{"beg')
    read = Journal.read(tmp_path / "journal")
    assert read.lost == {"c"} and read.done == {"k"}
    assert read.layers == [TunedLayer("layer", 1, 2, candidates=3, best="k[1]", best_ns=5)]


@pytest.mark.skipif(os.name != "posix", reason="parents of processes")
def test_a_child_ends_with_the_process_that_watches_it(tmp_path) -> None:
    """The process between is killed; the child, which would sleep for long, is gone soon."""
    child = (
        "import os, time; from polydevice.tuning.supervisor import end_with_parent; "
        "end_with_parent(); print(os.getpid(), flush=True); time.sleep(600)"
    )
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as output:
        assert int(output.readline()) != process.pid
        process.kill()
        process.wait(60)
        assert output.read() == ""  # closed by the last process that has it: the child is gone
