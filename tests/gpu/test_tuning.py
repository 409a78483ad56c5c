"""TUNING_MODE and TUNING_FILE: what is found is kept and used, and never wrong."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from polydevice import Core
from polydevice.cli import main
from polydevice.errors import DeviceError, OptionValueError
from polydevice.tuning import TunedLayer
from polydevice.tuning.journal import Journal
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.kernel import Choice
from polydevice_gpu.tuning import pretuned
from polydevice_gpu.tuning import tuner as tuner_module
from polydevice_gpu.tuning.candidates import candidates, find_choice, has_several
from polydevice_gpu.tuning.layer_key import LayerKey, layer_key
from polydevice_gpu.tuning.runner import Outcome, Runner, agrees
from polydevice_gpu.tuning.tuning_file import TuningFile
from tests.cpu.models import answer, build

rng = np.random.default_rng(4)
WEIGHTS = {
    "w0": rng.normal(0, 0.3, (8, 8, 3, 3)).astype(np.float32),
    "w1": rng.normal(0, 0.3, (8, 8, 1, 1)).astype(np.float32),
    "fc": rng.normal(0, 0.3, (128, 5)).astype(np.float32),
    "shape": np.array([1, -1], np.int64),
}
MODEL = build(
    [
        ("Conv", ["x", "w0"], ["c0"], {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
        ("Relu", ["c0"], ["r0"], {}),
        ("Conv", ["r0", "w1"], ["c1"], {}),
        ("Reshape", ["c1", "shape"], ["flat"], {}),
        ("MatMul", ["flat", "fc"], ["y"], {}),
    ],
    {"x": [1, 8, 8, 8]},
    ["y"],
    WEIGHTS,
)
INPUT = {"x": rng.random((1, 8, 8, 8), np.float32)}
(RIGHT,) = answer(MODEL, INPUT)
LAYERS = 4
"""The copy that puts channels side by side, two convolutions, a product."""


@pytest.fixture
def core(opencl):
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
    real = Runner.run
    speed = [1_000_000]

    def run(self: Runner, choice: Choice, *, timed: bool = True, **_: float) -> Outcome | None:
        if not timed:
            names.append(self._node.name)
        outcome = real(self, choice, timed=False)
        speed[0] -= 1
        return outcome and Outcome(outcome.outputs, speed[0])

    monkeypatch.setattr(Runner, "run", run)
    return names


def load(core, path, mode, **others):
    config = {"TUNING_MODE": mode, "TUNING_FILE": str(path), **others}
    executable = core.load_network(core.read_network(MODEL), "GPU", config)
    y = executable.infer(INPUT)["y"]
    np.testing.assert_allclose(y, RIGHT, rtol=1e-4, atol=1e-5)
    return executable


def choices(executable) -> dict[str, tuple[str, int]]:
    nodes = executable.latest_plan().graph.nodes
    return {n.name: (n.choice.kernel.name, n.choice.mode) for n in nodes if layer_key(n, "")}


def entries(path: Path) -> list[list]:
    content = json.loads(path.read_text())
    (kinds,) = content["version_2"].values()
    return [entry for kind in kinds.values() for entry in kind.values()]


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
    real = Runner.run

    def run(self: Runner, choice: Choice, *, timed: bool = True, **_: float) -> Outcome | None:
        outcome = real(self, choice, timed=timed)
        if timed and choice != self._node.choice and outcome:
            return Outcome(tuple(array + np.float32(0.5) for array in outcome.outputs), 1)
        return outcome

    monkeypatch.setattr(Runner, "run", run)
    assert choices(load(core, path, "TUNING_CREATE")) == default


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
    monkeypatch.setattr(Runner, "run", lambda *_, **__: None)
    assert choices(load(core, path, "TUNING_CREATE")) == default


def test_file_is_written_after_each_layer_and_a_killed_run_goes_on(
    core, path, timed, monkeypatch
) -> None:
    real = Runner.__init__

    def stop(self, node, *rest) -> None:
        if len(timed) == 2:
            raise KeyboardInterrupt
        real(self, node, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Runner, "__init__", stop)
        with pytest.raises(KeyboardInterrupt):
            load(core, path, "TUNING_CREATE")
    assert len(entries(path)) == 2
    load(core, path, "TUNING_CREATE")
    assert len(timed) == LAYERS  # those that were missing alone
    assert len(entries(path)) == LAYERS


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


@pytest.mark.parametrize(
    "entry", [["convolution_direct", 10**6], ["no_such_kernel", 0], ["convolution_direct"], 7, None,
              ["convolution_direct", "0"], ["gemm_mma", 0]],
)  # fmt: skip
def test_entries_that_cannot_be_used_leave_the_default(core, path, timed, entry) -> None:
    default = choices(core.load_network(core.read_network(MODEL), "GPU"))
    load(core, path, "TUNING_CREATE")
    content = json.loads(path.read_text())
    for kinds in content["version_2"].values():
        for kind in kinds.values():
            kind.update(dict.fromkeys(kind, entry))
    path.write_text(json.dumps(content))
    found = choices(load(core, path, "TUNING_USE_EXISTING"))
    if entry != ["gemm_mma", 0]:  # that one is a kernel, where the device has matrix units
        assert found == default


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


def test_key_tells_layers_apart_that_differ_in_speed(core) -> None:
    texts = set()
    for size, precision in ((8, "f32"), (10, "f32"), (8, "f16")):
        network = core.read_network(MODEL)
        if size != 8:
            continue
        config = {"INFERENCE_PRECISION_HINT": precision}
        graph = core.load_network(network, "GPU", config).latest_plan().graph
        for node in graph.nodes:
            key = layer_key(node, "device")
            if key:
                texts.add((key.kind, key.text))
    assert len(texts) == 2 * LAYERS - 1  # the copy of the input is of f32 in both
    assert all(text.endswith(";device") for _, text in texts)


def test_all_candidates_are_distinct_and_the_default_is_first(core, opencl) -> None:
    executable = core.load_network(core.read_network(MODEL), "GPU")
    for node in executable.latest_plan().graph.nodes:
        if layer_key(node, ""):
            found = candidates(node, executable._compiler.target)
            assert has_several(node, executable._compiler.target)
            assert found[0] == node.choice
            assert len(set(map(str, found))) == len(found) > 2
            assert find_choice(
                node, found[-1].kernel.name, found[-1].mode, executable._compiler.target
            )
            assert isinstance(node, GpuNode)


@pytest.mark.parametrize(
    ("change", "same"), [(0, True), (1e-7, True), (1e-2, False), (np.nan, False), (np.inf, False)]
)
def test_agreement(change, same) -> None:
    right = rng.normal(0, 1, 100).astype(np.float32)
    output = right.copy()
    output[7] += change
    assert agrees(output, right) is same


# -- the file --------------------------------------------------------------------------------------


def test_hash_is_fnv_1a() -> None:
    """The published test vector of "foobar", split at the separator that keys have."""
    value = 0xCBF29CE484222325
    for byte in b"A;b":
        value = ((value ^ byte) * 0x100000001B3) % 2**64
    assert LayerKey("A", "b").hash == str(value)


def test_all_generations_are_read(path) -> None:
    key = LayerKey("CONVOLUTION", "text")
    generations = [
        {"24": {key.hash: ["k", 1]}},
        {"version_1": {"24": {key.hash: ["k", 1]}}},
        {"version_2": {"24": {"CONVOLUTION": {"text": ["k", 1]}}}},
        {
            "version_2": {"24": {"CONVOLUTION": {"text": ["k", 1]}}},
            "version_1": {"24": {key.hash: ["old", 0]}},
        },
    ]
    for content in generations:
        path.write_text(json.dumps(content))
        file = TuningFile.open(path, must_exist=True)
        assert file.find(24, key) == ("k", 1)
        assert file.find(48, key) is None
        assert file.find(24, LayerKey("GEMM", "text")) is None
        file.store(48, key, ("new", -1))
        again = TuningFile.open(path, must_exist=True)
        assert (again.find(24, key), again.find(48, key)) == (("k", 1), ("new", -1))


def test_entries_of_another_process_stay(path) -> None:
    one, other = (TuningFile.open(path, must_exist=False) for _ in range(2))
    for number in range(4):
        one.store(1, LayerKey("A", f"one{number}"), ("k", number))
        other.store(1, LayerKey("A", f"other{number}"), ("k", number))
    found = json.loads(path.read_text())["version_2"]["1"]["A"]
    assert len(found) == 8


def test_every_choice_is_on_one_line(path) -> None:
    file = TuningFile.open(path, must_exist=False)
    file.store(1, LayerKey("A", 'with "quotes" and ü'), ("k", 2))
    lines = [line for line in path.read_text("utf-8").splitlines() if "quotes" in line]
    assert len(lines) == 1 and lines[0].endswith('["k", 2]')


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A folder in place of that which ships."""
    made = tmp_path / "pretuned"
    made.mkdir()
    monkeypatch.setattr(pretuned, "FOLDER", made)
    return made


def test_a_pretuned_file_counts_for_its_device_driver_and_kernels_only(
    core, path, timed, folder, opencl
) -> None:
    default = choices(core.load_network(core.read_network(MODEL), "GPU"))
    created = choices(load(core, path, "TUNING_CREATE"))
    assert created != default
    facts = opencl.facts
    name = pretuned.file_name(facts)
    others = (
        pretuned.file_name(replace(facts, name=f"{facts.name}x")),
        pretuned.file_name(replace(facts, driver_version=f"{facts.driver_version}.1")),
        name.replace(pretuned.kernels_version(), "0" * 12),
    )
    for other in others:
        path.rename(folder / other)
        assert choices(core.load_network(core.read_network(MODEL), "GPU")) == default
        (folder / other).rename(path)
    path.rename(folder / name)
    used = core.load_network(core.read_network(MODEL), "GPU")
    assert choices(used) == created
    assert str(used.explain()).count("by the pretuned file") >= LAYERS
    np.testing.assert_allclose(used.infer(INPUT)["y"], RIGHT, rtol=1e-4, atol=1e-5)
    assert choices(core.import_network(used.export(), "GPU")) == created
    without = {"TUNING_PRETUNED": "NO"}
    assert choices(core.load_network(core.read_network(MODEL), "GPU", without)) == default
    assert len(timed) == LAYERS  # nothing was timed but at the beginning


def test_the_users_file_counts_before_the_pretuned_one(core, path, timed, folder, opencl) -> None:
    created = choices(load(core, path, "TUNING_CREATE"))
    assert {created[name][0] for name in ("c0", "c1")} == {"convolution_ref"}
    content = json.loads(path.read_text())
    (kinds,) = content["version_2"].values()
    convolutions = kinds["CONVOLUTION"]
    kinds["CONVOLUTION"] = {text: ["convolution_direct", -1] for text in convolutions}
    (folder / pretuned.file_name(opencl.facts)).write_text(json.dumps(content))
    for name in kinds.keys() - {"CONVOLUTION"}:
        del kinds[name]
    kinds["CONVOLUTION"] = convolutions
    path.write_text(json.dumps(content))
    assert choices(load(core, path, "TUNING_USE_EXISTING")) == created
    shipped = choices(core.load_network(core.read_network(MODEL), "GPU"))
    changed = {name: kernel for name, (kernel, _) in shipped.items() if kernel != created[name][0]}
    assert changed == dict.fromkeys(("c0", "c1"), "convolution_direct")
    path.unlink()
    load(core, path, "TUNING_CREATE")  # what ships has no part in it
    assert len(timed) == 2 * LAYERS


def test_a_broken_pretuned_file_costs_a_warning(core, folder, opencl) -> None:
    default = choices(core.load_network(core.read_network(MODEL), "GPU"))
    (folder / pretuned.file_name(opencl.facts)).write_text("{")
    with pytest.warns(RuntimeWarning, match=r"is not used: .*no tuning file.*TUNING_PRETUNED=NO"):
        assert choices(core.load_network(core.read_network(MODEL), "GPU")) == default


def _file(path: Path, choices: dict, times: dict, **others) -> Path:
    units = {"24": {"GEMM": choices}}
    path.write_text(json.dumps({"version_2": units, "time_ns": {"24": {"GEMM": times}}, **others}))
    return path


def test_merging_keeps_the_faster_choice_and_all_others(tmp_path, path) -> None:
    known = {"both": ["slow", 1], "same": ["k", 0], "a": ["k", 2], "timed": ["unknown", 0]}
    one = _file(tmp_path / "a.json", known, {"both": 900, "same": 50, "a": 7},
                version_1={"24": {"1": ["v1 a", 0], "2": ["only a", 0]}})  # fmt: skip
    others = {"both": ["fast", 3], "same": ["k", 0], "b": ["k", 4], "timed": ["known", 5]}
    hashes = {"24": {"1": ["v1 b", 0]}, "48": {"3": ["other device", 0]}}
    times = {"both": 800, "same": 60, "timed": 10**9}
    other = _file(tmp_path / "b.json", others, times, version_1=hashes)
    with Core() as core:
        assert core.merge_tuning("GPU", [one, other], path) == 8
    content = json.loads(path.read_text())
    assert content == {
        "version_2": {"24": {"GEMM": {
            "both": ["fast", 3], "same": ["k", 0], "a": ["k", 2], "timed": ["known", 5],
            "b": ["k", 4],
        }}},
        "version_1": {"24": {"1": ["v1 a", 0], "2": ["only a", 0]},
                      "48": {"3": ["other device", 0]}},
        "time_ns": {"24": {"GEMM": {"both": 800, "same": 50, "a": 7, "timed": 10**9}}},
    }  # fmt: skip
    with Core() as core:  # into one of them, in the other order; then nothing changes any more
        assert core.merge_tuning("GPU", [other, one], other) == 8
        merged = json.loads(other.read_text())
        assert merged["version_2"] == content["version_2"]
        assert merged["time_ns"] == content["time_ns"]
        core.merge_tuning("GPU", [other, path, one], other)
    assert json.loads(other.read_text()) == merged


@pytest.mark.parametrize(
    "content", ["", "[1]", '{"24": 7}', '{"time_ns": 1}', '{"version_2": {"24": {"GEMM": 7}}}']
)
def test_merging_refuses_broken_files_and_writes_nothing(tmp_path, path, content) -> None:
    good = _file(tmp_path / "good.json", {"a": ["k", 1]}, {})
    before = good.read_bytes()
    (tmp_path / "bad.json").write_text(content)
    with Core() as core:
        with pytest.raises(OptionValueError, match=r"bad.json.* is no tuning file"):
            core.merge_tuning("GPU", [good, tmp_path / "bad.json"], path)
        with pytest.raises(OptionValueError, match=r"gone.json.* does not exist"):
            core.merge_tuning("GPU", [good, tmp_path / "gone.json"], good)
        with pytest.raises(OptionValueError, match=r"good.json.* is none of the files"):
            core.merge_tuning("GPU", [tmp_path / "bad.json"], good)
        with pytest.raises(OptionValueError, match="folder does not exist"):
            core.merge_tuning("GPU", [good], tmp_path / "no" / "file.json")
        with pytest.raises(DeviceError, match="CPU has no tuning files"):
            core.merge_tuning("CPU", [good], path)
    assert not path.exists() and good.read_bytes() == before


def test_command_merges(tmp_path, path, capsys) -> None:
    one = _file(tmp_path / "a.json", {"a": ["k", 1]}, {"a": 5})
    other = _file(tmp_path / "b.json", {"a": ["k", 2]}, {"a": 4})
    assert main(["tune", "--merge", str(one), str(other), "-o", str(path)]) == 0
    assert entries(path) == [["k", 2]]
    for words in (["model.onnx"], ["--merge", str(one)], ["m", "--merge", str(one)], []):
        assert main(["tune", *words]) == 2
        assert "polydevice tune: " in capsys.readouterr().err


def test_times_are_kept_beside_choices(path) -> None:
    key, other = LayerKey("GEMM", "text"), LayerKey("GEMM", "other")
    file = TuningFile.open(path, must_exist=False)
    for layer in (key, other):
        file.store(24, layer, ("k", 1), 500)
    again = TuningFile.open(path, must_exist=True)
    again.store(24, key, ("k", 1))  # as TUNING_UPDATE does: the same choice keeps its time
    assert json.loads(path.read_text())["time_ns"] == {"24": {"GEMM": {"text": 500, "other": 500}}}
    again.store(24, key, ("k", 2))
    again.store(24, other, None)
    assert json.loads(path.read_text())["time_ns"] == {"24": {"GEMM": {}}}
    assert len(again) == 1


def _shipped() -> Path:
    openvino = pytest.importorskip("openvino")
    found = Path(openvino.__file__).parent / "libs" / "cache.json"
    if not found.exists():
        pytest.skip("this OpenVINO brings no cache.json")
    return found


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


def test_command(path, tmp_path) -> None:
    (tmp_path / "model.onnx").write_bytes(MODEL)
    command = [
        sys.executable, "-m", "polydevice", "tune", str(tmp_path / "model.onnx"),
        "--file", str(path), "--budget", "500",
    ]  # fmt: skip
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=500,
                          env=dict(os.environ))  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(rows) == LAYERS
    assert all(float(row[2]) >= float(row[4]) > 0 for row in rows)
    assert len(entries(path)) == LAYERS
    again = subprocess.run(command, check=False, capture_output=True, text=True, timeout=500,
                           env=dict(os.environ))  # fmt: skip
    assert again.returncode == 0 and again.stdout == ""  # nothing is left to tune


FAULTS = """
import os, signal, time
import polydevice_gpu.tuning.runner as runner

real, calls = runner.Runner.run, []

def run(self, choice, **how):
    calls.append(choice)
    if len(calls) == 4 and "crash" not in open({notes!r}).read():
        open({notes!r}, "a").write("crash ")
        os.kill(os.getpid(), signal.SIGKILL)
    if len(calls) == 6 and "hang" not in open({notes!r}).read():
        open({notes!r}, "a").write("hang ")
        time.sleep(1000)
    return real(self, choice, **how)

runner.Runner.run = run
"""


@pytest.mark.full
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_crash_and_a_hang_cost_one_candidate_each(path, tmp_path) -> None:
    """The first child is killed and the second hangs; the third ends, with all layers."""
    notes = tmp_path / "notes"
    notes.touch()
    (tmp_path / "sitecustomize.py").write_text(FAULTS.format(notes=str(notes)))
    (tmp_path / "model.onnx").write_bytes(MODEL)
    command = [
        sys.executable, "-m", "polydevice", "tune", str(tmp_path / "model.onnx"),
        "--file", str(path), "--limit", "20",
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
    real = Runner.run
    seen: dict[tuple[str, str], int] = {}

    def run(self: Runner, choice: Choice, *, timed: bool = True, **_: float) -> Outcome | None:
        outcome = real(self, choice, timed=False)
        name = self._node.name, str(choice)
        seen[name] = seen.get(name, 0) + timed
        lucky = seen[name] == 1 and choice != self._node.choice
        return outcome and Outcome(outcome.outputs, 5 if lucky else 10)

    monkeypatch.setattr(Runner, "run", run)
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
