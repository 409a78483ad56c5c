"""HETERO end to end: the answers of one device, whatever the cut."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from polydevice import Core
from polydevice.errors import (
    DeviceNameError,
    DeviceNotFoundError,
    InferenceError,
    ModelFormatError,
    OptionValueError,
    UnknownOptionError,
    UnsupportedNetworkError,
)
from polydevice.network import Network
from polydevice_hetero.options import HeteroOptions

ROOT = Path(__file__).parents[2]
FACES = ROOT / "samples/models/blazeface/blazeface.xml"
SPEECH = ROOT / "tests/models/data/silero_vad_16k_stateful.xml"


@pytest.fixture
def core() -> Iterator[Core]:
    path = Path(__file__).with_name("second_cpu.py")
    if "second_cpu" not in sys.modules:
        spec = importlib.util.spec_from_file_location("second_cpu", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["second_cpu"] = module
        spec.loader.exec_module(module)
    with Core() as made:
        made.register_plugin("second_cpu", "PICKY")
        yield made


def faces(core: Core) -> Network:
    network = core.read_network(FACES)
    if network.is_dynamic:
        network.batch_size = 1
    return network


def face_inputs(network: Network) -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    return {
        name: random.random(info.shape.static, np.float32)  # type: ignore[union-attr]
        for name, info in network.inputs.items()
    }


def assert_same(actual: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    """The same primitives run either way; only fusing across a cut changes the rounding."""
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, rtol=2e-4, atol=2e-4, err_msg=name)


def test_automatic_placement_gives_the_single_device_answer(core):
    network = faces(core)
    inputs = face_inputs(network)
    expected = core.load_network(network, "CPU").infer(inputs)
    executable = core.load_network(network, "HETERO:PICKY,CPU")
    assert_same(executable.infer(inputs), expected)
    assert_same(executable.infer(inputs), expected)
    rows = {row.node: row for row in executable.placement()}
    relu = next(row for row in rows.values() if row.type == "ReLU")
    assert relu.device == "CPU"
    assert relu.reason == "PICKY cannot run it: it is picky"
    assert relu.bytes_in
    convolution = next(row for row in rows.values() if row.type == "Convolution")
    assert convolution.device == "PICKY"


@pytest.mark.parametrize("seed", range(3))
def test_random_cuts_give_the_single_device_answer(core, seed):
    network = faces(core)
    inputs = face_inputs(network)
    expected = core.load_network(network, "CPU").infer(inputs)
    random = np.random.default_rng(seed)
    device = "CPU"
    for node in network.nodes():
        if random.random() < 0.1:
            device = "PICKY" if device == "CPU" else "CPU"
        if node.type not in ("Parameter", "Const", "Result"):
            node.rt_info["affinity"] = "CPU" if node.type == "ReLU" else device
    executable = core.load_network(network, "HETERO:PICKY,CPU")
    assert len(executable.parts) > 3
    assert_same(executable.infer(inputs), expected)


def test_state_is_kept_across_parts(core):
    network = core.read_network(SPEECH)
    if network.is_dynamic:
        network.batch_size = 1
    random = np.random.default_rng(5)
    chunks = [
        {
            name: random.standard_normal(info.shape.static).astype(np.float32) * 0.1
            for name, info in network.inputs.items()
        }
        for _ in range(4)
    ]
    single = core.load_network(network, "CPU").requests[0]
    expected = [{k: v.copy() for k, v in single.infer(chunk).items()} for chunk in chunks]
    for number, node in enumerate(network.nodes()):
        if node.type not in ("Parameter", "Const", "Result"):
            picky = number % 7 < 3 and node.type != "ReLU"
            node.rt_info["affinity"] = "PICKY" if picky else "CPU"
    request = core.load_network(network, "HETERO:PICKY,CPU").requests[0]
    for chunk, answer in zip(chunks, expected):
        assert_same(request.infer(chunk), answer)
    states = request.query_state()
    assert states
    assert any(np.abs(s.state).sum() for s in states)
    for state in states:
        state.reset()
    assert_same(request.infer(chunks[0]), expected[0])


def test_many_requests_in_flight(core):
    network = faces(core)
    executable = core.load_network(network, "HETERO:PICKY,CPU", num_requests=4)
    single = core.load_network(network, "CPU")
    random = np.random.default_rng(9)
    name, info = next(iter(network.inputs.items()))
    inputs = [{name: random.random(info.shape.static, np.float32)} for _ in range(8)]
    expected = [single.infer(one) for one in inputs]
    for start in (0, 4):
        for i in range(4):
            executable.start_async(i, inputs[start + i])
        executable.wait()
        for i in range(4):
            blobs = executable.requests[i].output_blobs
            assert_same({k: b.array for k, b in blobs.items()}, expected[start + i])


def test_manual_affinities_must_be_complete(core):
    network = faces(core)
    next(n for n in network.nodes() if n.type == "ReLU").rt_info["affinity"] = "CPU"
    with pytest.raises(UnsupportedNetworkError, match="have no affinity while others have one"):
        core.load_network(network, "HETERO:PICKY,CPU")
    for node in network.nodes():
        node.rt_info["affinity"] = "not a device"
    with pytest.raises(DeviceNameError, match="affinity of node"):
        core.load_network(network, "HETERO:PICKY,CPU")


def test_what_no_member_can_run_is_listed(core):
    with pytest.raises(UnsupportedNetworkError) as caught:
        core.load_network(faces(core), "HETERO:PICKY")
    message = str(caught.value)
    assert "none of PICKY can run" in message
    assert "(ReLU, opset1): PICKY cannot run it: it is picky" in message


def test_configuration_reaches_the_members_that_know_it(core):
    network = faces(core)
    executable = core.load_network(
        network, "HETERO:PICKY,CPU", {"CPU_THREADS_NUM": "1", "PERF_COUNT": "YES"}
    )
    assert all(part.get_config("CPU_THREADS_NUM") == "1" for part in executable.parts)
    assert executable.get_config("PERF_COUNT") == "YES"
    assert executable.get_config("TARGET_FALLBACK") == "PICKY,CPU"
    with pytest.raises(UnknownOptionError, match="unknown configuration key 'PERF_COUNTS'"):
        executable.get_config("PERF_COUNTS")
    request = executable.requests[0]
    request.infer(face_inputs(network))
    names = list(request.get_perf_counts())
    assert names[0].startswith("subgraph0: ")
    assert any(name.startswith("subgraph1: ") for name in names)
    with pytest.raises(UnknownOptionError, match="neither HETERO nor PICKY, CPU knows.*CPU_THREAD"):
        core.load_network(network, "HETERO:PICKY,CPU", {"CPU_THREADS_NUMS": "1"})
    with pytest.raises(OptionValueError):
        core.load_network(network, "HETERO:PICKY,CPU", {"CPU_THREADS_NUM": "many"})


def test_members_are_needed_and_must_exist(core):
    with pytest.raises(DeviceNotFoundError, match="needs members"):
        core.load_network(faces(core), "HETERO")
    with pytest.raises(DeviceNotFoundError, match="'TPU' is registered"):
        core.load_network(faces(core), "HETERO:TPU,CPU")


def test_export_and_import_keep_the_cut(core, monkeypatch):
    network = faces(core)
    inputs = face_inputs(network)
    executable = core.load_network(network, "HETERO:PICKY,CPU", {"CPU_THREADS_NUM": "1"})
    expected = {k: v.copy() for k, v in executable.infer(inputs).items()}
    content = executable.export()
    monkeypatch.setattr(Core, "load_network", None)  # every part must come from its export
    imported = core.import_network(content, "HETERO")
    assert [p.device for p in imported.subgraphs] == [p.device for p in executable.subgraphs]
    assert all(part.get_config("CPU_THREADS_NUM") == "1" for part in imported.parts)
    for name, value in imported.infer(inputs).items():
        np.testing.assert_array_equal(value, expected[name])
    with pytest.raises(ModelFormatError, match="damaged"):
        core.import_network(content[:-40], "HETERO")


def test_state_survives_export(core):
    network = core.read_network(SPEECH)
    if network.is_dynamic:
        network.batch_size = 1
    executable = core.load_network(network, "HETERO:PICKY,CPU")
    imported = core.import_network(executable.export(), "HETERO:PICKY,CPU")
    random = np.random.default_rng(3)
    requests = [one.create_infer_request() for one in (executable, imported)]
    for _ in range(3):
        chunk = {
            name: random.standard_normal(info.shape.static).astype(np.float32)
            for name, info in network.inputs.items()
        }
        assert_same(requests[1].infer(chunk), requests[0].infer(chunk))


def test_pictures(core, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    core.load_network(faces(core), "HETERO:PICKY,CPU", {"HETERO_DUMP_GRAPH_DOT": "YES"})
    written = sorted(path.name for path in tmp_path.iterdir())
    assert [name.split("_")[1] for name in written] == ["affinity", "subgraphs"]
    text = (tmp_path / written[1]).read_text()
    assert "device=PICKY" in text
    assert "subgraph=1" in text


def test_a_member_that_fails_leaves_the_rest_usable(core, monkeypatch):
    network = faces(core)
    inputs = face_inputs(network)
    executable = core.load_network(network, "HETERO:PICKY,CPU")
    request = executable.requests[0]
    good = {k: v.copy() for k, v in request.infer(inputs).items()}
    broken = request.runner.parts[1]

    def fail(stream: int) -> None:
        raise OSError("device lost")

    with monkeypatch.context() as patch:
        patch.setattr(broken.runner, "run", fail)
        with pytest.raises(InferenceError, match="subgraph 1 on .*device lost"):
            request.infer(inputs)
    assert_same(request.infer(inputs), good)


def test_a_third_party_device_takes_part(core, monkeypatch):
    """The sample device runs what it can; CPU runs the rest."""
    monkeypatch.syspath_prepend(str(ROOT / "samples/npu_plugin"))
    core.register_plugin("polydevice_npu", "NPU")
    network = faces(core)
    inputs = face_inputs(network)
    executable = core.load_network(network, "HETERO:NPU,CPU")
    devices = {row.device for row in executable.placement()}
    assert {"NPU", "CPU"} <= devices
    assert_same(executable.infer(inputs), core.load_network(network, "CPU").infer(inputs))


def test_query_names_the_member_of_each_node(core):
    """Each node's first member, as it was named; affinities are not looked at."""
    network = faces(core)
    for node in network.nodes():
        node.rt_info["affinity"] = "CPU"
    found = core.query_network(network, "HETERO:PICKY.0,CPU")
    types = {node.name: node.type for node in network.nodes()}
    assert found.keys() == types.keys()
    computing = {n for n, kind in types.items() if kind not in ("Parameter", "Const", "Result")}
    for name in computing:
        assert found[name] == ("CPU" if types[name] == "ReLU" else "PICKY.0"), name
    alone = core.query_network(network, "HETERO:PICKY")
    assert computing - alone.keys() == {n for n, kind in types.items() if kind == "ReLU"}


def test_a_member_that_cannot_tell_what_it_runs_is_given_nothing(core, monkeypatch):
    plugin = sys.modules["second_cpu"].PickyPlugin

    def refuse(self, network, options):
        raise UnsupportedNetworkError("no sizes for input 'x' were found; call reshape()")

    monkeypatch.setattr(plugin, "unsupported_nodes", refuse)
    network = faces(core)
    executable = core.load_network(network, "HETERO:PICKY,CPU")
    assert [part.device for part in executable.subgraphs] == ["CPU"]
    reasons = {row.reason for row in executable.placement() if row.type == "ReLU"}
    assert reasons == {"PICKY cannot run it: no sizes for input 'x' were found; call reshape()"}
    with pytest.raises(UnsupportedNetworkError, match="PICKY cannot run it: no sizes for input"):
        core.load_network(network, "HETERO:PICKY")


def test_the_accuracy_guard_tries_in_f32_what_members_were_told_to_compute_in_less() -> None:
    told = HeteroOptions(member_config={"ENFORCE_BF16": "YES", "PERF_COUNT": "YES"})
    assert told.trial(in_f32=False) == told
    exact = told.trial(in_f32=True)
    assert exact.member_config == {"ENFORCE_BF16": "NO", "PERF_COUNT": "YES"}
    assert HeteroOptions().trial(in_f32=True) == HeteroOptions(), "there is nothing to guard"
