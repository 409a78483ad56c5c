"""`polydevice validate`: models are read and checked without loading, hostile ones too."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice import validate
from polydevice.cli import main
from polydevice.errors import DeviceError, OptionValueError
from polydevice.readers.limits import ReadLimits

from .ir_text import addition, edges, layer, net, parameter, result


def loop(trips: int, inner: int | None = None) -> bytes:
    """x doubled `trips` times, or `trips` times `inner` times."""

    def graph(name: str, count: int | None) -> object:
        info = helper.make_tensor_value_info
        nodes, constants = [helper.make_node("Identity", ["c"], ["c_out"])], []
        if count is None:
            nodes.append(helper.make_node("Add", ["s", "s"], ["s_out"]))
        else:
            body = graph(f"{name}_body", None)
            nodes.append(helper.make_node("Loop", ["n", "", "s"], ["s_out"], body=body))
            constants.append(numpy_helper.from_array(np.array(count), "n"))
        inputs = [info("i", 7, []), info("c", 9, []), info("s", 1, [2])]
        outputs = [info("c_out", 9, []), info("s_out", 1, [2])]
        return helper.make_graph(nodes, name, inputs, outputs, constants)

    outer = helper.make_graph(
        [helper.make_node("Loop", ["n", "", "x"], ["y"], name="outer", body=graph("b", inner))],
        "g",
        [helper.make_tensor_value_info("x", 1, [2])],
        [helper.make_tensor_value_info("y", 1, [2])],
        [numpy_helper.from_array(np.array(trips), "n")],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(outer, opset_imports=opsets, ir_version=8).SerializeToString()


def write(folder, name: str = "model.xml"):
    path = folder / name
    path.write_bytes(addition())
    path.with_suffix(".bin").write_bytes(np.arange(6, dtype=np.float32).tobytes())
    return path


def test_what_a_model_asks_for(tmp_path) -> None:
    path = write(tmp_path)
    found = validate(path, devices=["CPU"])
    assert found.is_valid
    assert found.files == [str(path), str(path.with_suffix(".bin"))]
    assert found.counts["constant_bytes"] == 24
    assert (found.counts["tensor_elements"], found.counts["rank"]) == (6, 2)
    assert found.counts["nodes"] == sum(found.operations.values()) == 4
    assert found.devices == {"CPU": {}}


@pytest.mark.parametrize(
    "limit",
    [
        {"layers": 2},
        {"rank": 1},
        {"tensor_elements": 5},
        {"topology_bytes": 50},
        {"xml_depth": 2},
        {"xml_elements": 3},
        {"weights_bytes": 23},
        {"constant_bytes": 23},
    ],
)
def test_limits(tmp_path, limit) -> None:
    path = write(tmp_path)
    (name,) = limit
    for limits in (limit, {name: str(limit[name])}):
        (problem,) = validate(path, limits=limits, devices=[]).problems
        assert problem.error == "ModelLimitError"
    if name != "constant_bytes":
        assert not validate(path, limits=ReadLimits(**limit), devices=[]).is_valid


@pytest.mark.parametrize(
    "limits", [{"layer": 1}, {"layers": -1}, {"layers": "many"}, {"layers": True}, {1: 2}, 7]
)
def test_limits_that_are_none(limits) -> None:
    with pytest.raises(OptionValueError):
        validate(addition(), limits=limits, devices=[])


def test_trips_of_loops_inside_loops_multiply() -> None:
    found = validate(loop(1000, 7), limits={"loop_trips": 7000}, devices=[])
    assert found.is_valid
    assert sorted(found.loops.values()) == [1000, 7000]
    assert found.counts["depth"] == 3
    (problem,) = validate(loop(1000, 7), limits={"loop_trips": 6999}, devices=[]).problems
    assert "7000" in problem.message
    assert problem.error == "ModelLimitError"


@pytest.mark.parametrize("trips", [(1 << 63) - 1, (1 << 31) - 1])
def test_a_loop_that_its_condition_ends_states_no_trips(trips) -> None:
    found = validate(loop(trips, 7), limits={"loop_trips": 10}, devices=[])
    assert found.is_valid, found.problems
    assert set(found.loops.values()) == {None}


@pytest.mark.parametrize("model", [b"garbage", loop(1)], ids=["bad", "good"])
@pytest.mark.parametrize("missing", ["CPU.9", "HETERO:CPU.9", "NONE", "GPU.99"])
def test_devices_that_are_not_there(model, missing) -> None:
    with pytest.raises(DeviceError):
        validate(model, devices=[missing])


def hostile(folder) -> dict[str, tuple[object, str]]:
    """Name → a model, and the exception that it is refused with."""
    os.mkfifo(folder / "pipe.onnx")
    linked = write(folder, "linked.xml")
    linked.with_suffix(".bin").unlink()
    linked.with_suffix(".bin").symlink_to("/etc/passwd")
    entity = b'<!DOCTYPE net [<!ENTITY a SYSTEM "/etc/passwd">]><net>&a;</net>'
    external = TensorProto(name="w", data_type=1, dims=[2], data_location=TensorProto.EXTERNAL)
    external.external_data.add(key="location", value="../../../etc/passwd")
    graph = helper.make_graph(
        [helper.make_node("Relu", ["w"], ["y"])],
        "g",
        [],
        [helper.make_tensor_value_info("y", 1, [2])],
        [external],
    )
    (folder / "out.onnx").write_bytes(helper.make_model(graph, ir_version=8).SerializeToString())
    return {
        "empty": (b"", "ModelFileError"),
        "noise": (b"\xff" * 1000, "ModelFormatError"),
        "truncated": (addition()[:200], "ModelFormatError"),
        "entity": (entity, "ModelFormatError"),
        "missing": (folder / "missing.onnx", "ModelFileError"),
        "pipe": (folder / "pipe.onnx", "ModelFileError"),
        "endless": ("/dev/zero", "ModelFileError"),
        "linked": (linked, "ModelFileError"),
        "outside": (folder / "out.onnx", "ModelFileError"),
    }


@pytest.mark.timeout(60)
def test_hostile_files_are_answered_not_raised(tmp_path) -> None:
    for name, (model, error) in hostile(tmp_path).items():
        found = validate(model, devices=[])
        assert [problem.error for problem in found.problems] == [error], name
    assert found.files == [str(tmp_path / "out.onnx"), f"{tmp_path}/../../../etc/passwd"]


def test_devices_say_what_they_cannot_run(tmp_path, capsys) -> None:
    sizes = [(0, "FP32", (4, 3))]
    topology = net(
        parameter(0, "x", (4, 3))
        + layer(1, "y", "Frobnicate", {}, sizes, [(1, "FP32", (4, 3))], version="other")
        + result(2, "out", (4, 3)),
        edges((0, 0, 1, 0), (1, 1, 2, 0)),
    )
    (tmp_path / "model.xml").write_bytes(topology)
    found = validate(topology, devices=["CPU"])
    assert found.is_valid
    assert list(found.devices["CPU"]) == ["y"]
    command = ["validate", str(tmp_path / "model.xml")]
    assert main(command) == 0
    assert "Frobnicate" in capsys.readouterr().out
    assert main([*command, "-d", "CPU"]) == 1
    assert main([*command, "-d", "NOTHING"]) == 1


def test_command_line(tmp_path, capsys) -> None:
    path = write(tmp_path)
    assert main(["validate", str(path), "--json", "-d", "CPU"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["is_valid"]
    assert answer["files"] == [str(path), str(path.with_suffix(".bin"))]
    assert main(["validate", str(path), "--json", "--limits", "layers=2", "rank=9"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["problems"][0]["error"] == "ModelLimitError"
    assert main(["validate", str(path), "--limits", "layer=2"]) == 1
    assert "Did you mean 'layers" in capsys.readouterr().err


def test_a_limit_of_thousands_of_digits_is_an_error_of_ours() -> None:
    with pytest.raises(OptionValueError, match="layers"):
        validate(b"", limits={"layers": "9" * 5000}, devices=[])
