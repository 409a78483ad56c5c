"""TUNING_MODE and TUNING_FILE: what is found is kept and used, and never wrong."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest

from polydevice.errors import OptionValueError
from polydevice_gpu.kernels.kernel import Choice
from polydevice_gpu.tuning import tuner as tuner_module
from polydevice_gpu.tuning.candidate_runner import CandidateRunner, Outcome
from polydevice_gpu.tuning.layer_key import layer_key
from tests.gpu.tuning.network import INPUT, LAYERS, MODEL, choices, entries, load


def test_create_writes_what_use_existing_applies(core, path, timed, opencl) -> None:
    default = choices(core.load_network(core.read_network(MODEL), "GPU"))
    created = choices(load(core, path, "TUNING_CREATE"))
    assert len(timed) == LAYERS and len(created) == LAYERS
    assert created != default  # the made-up times favour others
    content = json.loads(path.read_text())
    assert set(content) == {"version_1", "version_2", "time_ns"}
    kinds = content["version_2"][str(opencl.facts.max_compute_units)]
    assert {kind: len(found) for kind, found in kinds.items()} == {
        "CONVOLUTION": 2, "FULLY_CONNECTED": 1, "FUSED": 1,
    }  # fmt: skip
    assert sorted(map(tuple, entries(path))) == sorted(created.values())
    before = path.read_bytes()
    assert choices(load(core, path, "TUNING_USE_EXISTING")) == created
    assert len(timed) == LAYERS and path.read_bytes() == before
    assert choices(load(core, path, "TUNING_DISABLED")) == default
    assert choices(load(core, path, "TUNING_CREATE")) == created  # all known: nothing is timed
    assert len(timed) == LAYERS


def test_really_measured(core, path) -> None:
    """With real times; the default is a candidate, so what is chosen was never slower."""
    records = []

    class Keep(logging.Handler):
        def emit(self, record) -> None:
            records.append(record.tuned)

    logger, handler = logging.getLogger("polydevice.tuning"), Keep()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        load(core, path, "TUNING_CREATE")
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    assert [r.number for r in records] == [1, 2, 3, 4] and {r.count for r in records} == {4}
    for record in records:
        assert 0 < record.best_ns <= record.default_ns
        assert record.candidates > 2
        assert record.rejected < record.candidates - 1
    assert len(entries(path)) == LAYERS


def test_wrong_candidates_are_rejected(core, path, monkeypatch, timed) -> None:
    """Every candidate but the default computes something else, and is very fast."""
    default = choices(core.load_network(core.read_network(MODEL), "GPU"))
    real = CandidateRunner.run

    def run(
        self: CandidateRunner, choice: Choice, *, timed: bool = True, **_: float
    ) -> Outcome | None:
        outcome = real(self, choice, timed=timed)
        if timed and choice != self._node.choice and outcome:
            return Outcome(tuple(array + np.float32(0.5) for array in outcome.outputs), 1)
        return outcome

    monkeypatch.setattr(CandidateRunner, "run", run)
    assert choices(load(core, path, "TUNING_CREATE")) == default


@pytest.mark.full
def test_candidates_are_built_several_at_a_time(core, path, monkeypatch) -> None:
    from polydevice_gpu.cl.programs.program import ProgramBuilder

    built = []
    real = ProgramBuilder.build_all

    def build_all(self, sources):
        built.append(len(sources))
        return real(self, sources)

    monkeypatch.setattr(ProgramBuilder, "build_all", build_all)
    load(core, path, "TUNING_CREATE")
    assert len([count for count in built if count > 2]) >= LAYERS


def test_default_stays_when_nothing_else_works(core, path, monkeypatch) -> None:
    default = choices(core.load_network(core.read_network(MODEL), "GPU"))
    monkeypatch.setattr(CandidateRunner, "run", lambda *_, **__: None)
    assert choices(load(core, path, "TUNING_CREATE")) == default


def test_file_is_written_after_each_layer_and_a_killed_run_goes_on(
    core, path, timed, monkeypatch
) -> None:
    real = CandidateRunner.__init__

    def stop(self, node, *rest) -> None:
        if len(timed) == 2:
            raise KeyboardInterrupt
        real(self, node, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(CandidateRunner, "__init__", stop)
        with pytest.raises(KeyboardInterrupt):
            load(core, path, "TUNING_CREATE")
    assert len(entries(path)) == 2
    load(core, path, "TUNING_CREATE")
    assert len(timed) == LAYERS  # those that were missing alone
    assert len(entries(path)) == LAYERS


@pytest.mark.full
def test_retune_times_again_and_replaces(core, path, timed) -> None:
    load(core, path, "TUNING_CREATE")
    content = json.loads(path.read_text())
    for kinds in content["version_2"].values():
        for name, kind in kinds.items():
            reference = {"CONVOLUTION": "convolution_ref", "FULLY_CONNECTED": "matmul_ref"}
            kind.update({key: [reference.get(name, "elementwise_ref"), 0] for key in kind})
    path.write_text(json.dumps(content))
    used = choices(load(core, path, "TUNING_USE_EXISTING"))
    assert {name for name, _ in used.values()} == {
        "convolution_ref", "elementwise_ref", "matmul_ref",
    }  # fmt: skip
    load(core, path, "TUNING_RETUNE")
    assert len(timed) == 2 * LAYERS
    assert len(entries(path)) == LAYERS


def test_update_drops_what_no_longer_works_and_moves_version_1(core, path, timed, opencl) -> None:
    created = load(core, path, "TUNING_CREATE")
    node = next(n for n in created.latest_plan().graph.nodes if layer_key(n, ""))
    key = layer_key(node, opencl.facts.name)
    units = str(opencl.facts.max_compute_units)
    content = json.loads(path.read_text())
    good = content["version_2"][units][key.kind].pop(key.text)
    other = next(iter(content["version_2"][units]["FULLY_CONNECTED"]))
    content["version_2"][units]["FULLY_CONNECTED"][other] = ["gone_with_the_wind", 3]
    content[units] = {key.hash: good}  # the oldest generation
    path.write_text(json.dumps(content))
    before = path.read_bytes()
    assert choices(load(core, path, "TUNING_USE_EXISTING"))[node.name] == tuple(good)
    assert path.read_bytes() == before  # only read
    load(core, path, "TUNING_UPDATE")
    content = json.loads(path.read_text())
    assert content["version_2"][units][key.kind][key.text] == good
    assert content["version_2"][units]["FULLY_CONNECTED"] == {}
    assert len(timed) == LAYERS  # nothing was timed again


def test_check_keeps_what_is_faster_in_turn_and_right(
    core, path, timed, opencl, monkeypatch
) -> None:
    """Of four choices one is that without tuning, one wrong and one slower; the last one stays."""
    default = choices(core.load_network(core.read_network(MODEL), "GPU"))
    tuned = load(core, path, "TUNING_CREATE")
    created = choices(tuned)
    assert len([name for name in created if created[name] != default[name]]) == LAYERS
    same, wrong, slower, faster = sorted(created)
    node = next(n for n in tuned.latest_plan().graph.nodes if n.name == same)
    key = layer_key(node, opencl.facts.name)
    content = json.loads(path.read_text())
    units = str(opencl.facts.max_compute_units)
    content["version_2"][units][key.kind][key.text] = list(default[same])
    path.write_text(json.dumps(content))
    real, runs = CandidateRunner.run, []

    def run(self: CandidateRunner, choice: Choice, **_: float) -> Outcome | None:
        name = self._node.name
        runs.append(name)
        is_default = (choice.kernel.name, choice.mode) == default[name]
        outputs = real(self, choice, timed=False).outputs
        if name == wrong and not is_default:
            outputs = tuple(array + np.float32(0.5) for array in outputs)
        times = {slower: 99, faster: 90, wrong: 1}
        return Outcome(outputs, 100 if is_default else times[name])

    monkeypatch.setattr(CandidateRunner, "run", run)
    assert choices(load(core, path, "TUNING_CHECK")) == default
    assert entries(path) == [list(created[faster])]
    assert same not in runs and runs.count(wrong) == 2 and runs.count(faster) == 22
    assert choices(load(core, path, "TUNING_USE_EXISTING")) == {**default, faster: created[faster]}


def test_entries_that_cannot_be_used_leave_the_default(core, path, timed) -> None:
    default = choices(core.load_network(core.read_network(MODEL), "GPU"))
    load(core, path, "TUNING_CREATE")
    content = json.loads(path.read_text())
    for entry in (
        ["convolution_direct", 10**6], ["no_such_kernel", 0], ["convolution_direct"], 7, None,
        ["convolution_direct", "0"], ["gemm_mma", 0],
    ):  # fmt: skip
        for kinds in content["version_2"].values():
            for kind in kinds.values():
                kind.update(dict.fromkeys(kind, entry))
        path.write_text(json.dumps(content))
        found = choices(load(core, path, "TUNING_USE_EXISTING"))
        if entry != ["gemm_mma", 0]:  # that one is a kernel, where the device has matrix units
            assert found == default, entry


@pytest.mark.full
def test_mode_minus_1_is_the_kernels_default(core, path, timed, opencl) -> None:
    load(core, path, "TUNING_CREATE")
    content = json.loads(path.read_text())
    for kinds in content["version_2"].values():
        for kind in kinds.values():
            kind.update({text: [name, -1] for text, (name, _) in kind.items()})
    path.write_text(json.dumps(content))
    executable = load(core, path, "TUNING_USE_EXISTING")
    for node in executable.latest_plan().graph.nodes:
        if layer_key(node, ""):
            kernel = node.choice.kernel
            assert node.choice.mode == kernel.default_mode(node, executable._compiler.target)


@pytest.mark.parametrize("mode", ["TUNING_USE_EXISTING", "TUNING_UPDATE"])
def test_missing_file(core, path, mode) -> None:
    with pytest.raises(OptionValueError, match=r"tuning.json.* does not exist.*TUNING_CREATE"):
        load(core, path, mode)


@pytest.mark.parametrize("mode", ["TUNING_USE_EXISTING", "TUNING_CREATE"])
@pytest.mark.parametrize(
    "content", ["", "[1]", "{", '{"24": 7}', '{"version_2": []}', "\0\1", "[" * 100_000]
)
def test_malformed_file_is_an_error_and_stays(core, path, mode, content) -> None:
    path.write_text(content)
    with pytest.raises(OptionValueError, match=r"tuning.json.* is no tuning file"):
        load(core, path, mode)
    assert path.read_text() == content


def test_file_must_be_named_and_its_folder_exist(core, tmp_path) -> None:
    with pytest.raises(OptionValueError, match="TUNING_MODE=TUNING_CREATE needs TUNING_FILE"):
        load(core, "", "TUNING_CREATE")
    with pytest.raises(OptionValueError, match="folder does not exist"):
        load(core, tmp_path / "no" / "file.json", "TUNING_CREATE")


def test_budget_stops_and_the_next_load_goes_on(core, path, timed, monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr(
        tuner_module.time, "monotonic", lambda: now.__setitem__(0, now[0] + 1) or now[0]
    )
    load(core, path, "TUNING_CREATE", TUNING_BUDGET_S=1)
    assert 0 < len(timed) < LAYERS
    load(core, path, "TUNING_CREATE")
    assert len(timed) == LAYERS


@pytest.mark.full
def test_exported_network_keeps_its_kernels(core, path, timed) -> None:
    executable = load(core, path, "TUNING_CREATE")
    content = executable.export()
    path.unlink()
    imported = core.import_network(content, "GPU")
    assert choices(imported) == choices(executable)
    np.testing.assert_array_equal(imported.infer(INPUT)["y"], executable.infer(INPUT)["y"])
    with pytest.raises(OptionValueError, match="TUNING_MODE=TUNING_CREATE is not possible"):
        core.import_network(
            content, "GPU", {"TUNING_MODE": "TUNING_CREATE", "TUNING_FILE": str(path)}
        )
