"""Tuning files: all generations, other processes, merging, and those that ship."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest

from polydevice import Core
from polydevice.cli import main
from polydevice.errors import DeviceError, OptionValueError
from polydevice_gpu.kernels.kernel import all_kernels
from polydevice_gpu.tuning import pretuned
from polydevice_gpu.tuning.layer_key import LayerKey
from polydevice_gpu.tuning.tuning_file import TuningFile
from tests.gpu.tuning.network import INPUT, LAYERS, MODEL, RIGHT, choices, entries, load


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
    assert TuningFile.open(path, must_exist=False).is_empty
    for content in generations:
        path.write_text(json.dumps(content))
        file = TuningFile.open(path, must_exist=True)
        assert not file.is_empty
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
    files = pretuned.ship(path, opencl.facts, folder)
    path.unlink()
    assert {file.name for file in files} == {
        pretuned.file_name(opencl.facts, family)
        for family in ("convolution", "pointwise", "product")
    }
    for change in (
        lambda name: name.replace(",", "x,", 1),  # another device
        lambda name: re.sub("^([^,]+,[^,]+),", r"\1.1,", name),  # another driver
        lambda name: re.sub(r"[0-9a-f]{12}\.json", "0" * 12 + ".json", name),  # other kernels
    ):
        for file in files:
            file.rename(folder / change(file.name))
        assert choices(core.load_network(core.read_network(MODEL), "GPU")) == default
        for file in files:
            (folder / change(file.name)).rename(file)
    used = core.load_network(core.read_network(MODEL), "GPU")
    assert choices(used) == created
    assert str(used.explain()).count("by the pretuned file") >= LAYERS
    np.testing.assert_allclose(used.infer(INPUT)["y"], RIGHT, rtol=1e-4, atol=1e-5)
    assert choices(core.import_network(used.export(), "GPU")) == created
    without = {"TUNING_PRETUNED": "NO"}
    assert choices(core.load_network(core.read_network(MODEL), "GPU", without)) == default
    assert len(timed) == LAYERS  # nothing was timed but at the beginning


@pytest.mark.full
def test_the_users_file_counts_before_the_pretuned_one(core, path, timed, folder, opencl) -> None:
    created = choices(load(core, path, "TUNING_CREATE"))
    assert {created[name][0] for name in ("c0", "c1")} == {"convolution_ref"}
    content = json.loads(path.read_text())
    (kinds,) = content["version_2"].values()
    convolutions = kinds["CONVOLUTION"]
    kinds["CONVOLUTION"] = {text: ["convolution_direct", -1] for text in convolutions}
    (folder / pretuned.file_name(opencl.facts, "convolution")).write_text(json.dumps(content))
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
    (folder / pretuned.file_name(opencl.facts, "row")).write_text("{")
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


def test_files_that_ship_name_kernels_that_there_are() -> None:
    """Of whatever device: this one need not be here."""
    known = {k.name: pretuned.family_of(k) for them in all_kernels().values() for k in them}
    for path in pretuned.FOLDER.glob("*.json"):
        device, _, family, _ = path.name.split(",")
        content = json.loads(path.read_text())
        (units,) = content["version_2"]
        choices = list(TuningFile.open(path, must_exist=True).choices(int(units)))
        assert choices and len(choices) == len(TuningFile.open(path, must_exist=True))
        for _, text, (name, _), time_ns in choices:
            assert text.endswith(unquote(device)) and time_ns > 0
            assert known.get(name, family) == family
