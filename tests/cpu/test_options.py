"""Configuration keys of the CPU device, as they are read back."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest

from polydevice import Core
from polydevice.errors import OptionValueError, RequestError
from polydevice_cpu.cores import cores_of_streams, parse_list
from polydevice_cpu.options import CpuOptions, available_cores
from tests.cpu.models import build


@pytest.fixture
def network(core: Core):
    return core.read_network(build([("Relu", ["x"], ["y"], {})], {"x": (2, 3)}, ("y",), {}))


@pytest.mark.parametrize(
    ("config", "streams"),
    [
        ({}, 1),
        ({"CPU_THROUGHPUT_STREAMS": "3"}, 3),
        ({"CPU_THROUGHPUT_STREAMS": "CPU_THROUGHPUT_AUTO", "CPU_THREADS_NUM": "5"}, 5),
        ({"CPU_THROUGHPUT_STREAMS": "CPU_THROUGHPUT_NUMA"}, available_cores()),
        ({"PERFORMANCE_HINT": "THROUGHPUT", "CPU_THREADS_NUM": "4"}, 4),
        ({"PERFORMANCE_HINT": "LATENCY", "CPU_THREADS_NUM": "4"}, 1),
    ],
)
def test_the_number_of_streams_is_read_back_as_it_runs(core, network, config, streams) -> None:
    executable = core.load_network(network, "CPU", config)
    assert (
        executable.get_config("CPU_THROUGHPUT_STREAMS") == str(streams) == str(executable.streams)
    )
    imported = core.import_network(executable.export(), "CPU", {})
    assert imported.get_config("CPU_THROUGHPUT_STREAMS") == str(streams)
    core.set_config(config, "CPU")
    assert core.get_config("CPU", "CPU_THROUGHPUT_STREAMS") == str(streams)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads cannot be kept to cores")
@pytest.mark.parametrize("mode", ["YES", "NUMA", "HYBRID_AWARE", "NO"])
def test_threads_of_streams_keep_to_their_cores(core, network, mode, rng) -> None:
    allowed = os.sched_getaffinity(0)
    config = {"CPU_BIND_THREAD": mode, "CPU_THROUGHPUT_STREAMS": "2"}
    executable = core.load_network(network, "CPU", config)
    assert executable.get_config("CPU_BIND_THREAD") == mode
    found: dict[str, frozenset[int]] = {}
    both = threading.Barrier(2)

    def note(*_: object) -> None:
        both.wait(30)  # so that each of the two streams runs one
        found[threading.current_thread().name] = frozenset(os.sched_getaffinity(0))

    queue = executable.infer_queue(2)
    queue.set_callback(note)
    x = rng.standard_normal((2, 3)).astype("f4")
    for _ in range(2):
        queue.start_async(x)
    queue.wait_all()
    right = cores_of_streams(mode, 2) or [frozenset(allowed)] * 2
    assert [found[name] for name in sorted(found)] == right
    np.testing.assert_array_equal(executable.infer(x)["y"], np.maximum(x, 0))
    assert os.sched_getaffinity(0) == allowed  # this thread is the user's


def test_cores_are_shared_out(monkeypatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3, 6, 7, 8}, raising=False)
    monkeypatch.setattr(
        "polydevice_cpu.cores._nodes", lambda: [parse_list("0-3"), parse_list("4-8")]
    )
    assert cores_of_streams("YES", 2) == [{0, 1, 2}, {3, 6, 7, 8}]
    assert [len(cores) for cores in cores_of_streams("YES", 9)] == [1] * 9
    assert cores_of_streams("NUMA", 3) == [{0, 1, 2, 3}, {6, 7, 8}, {0, 1, 2, 3}]
    assert cores_of_streams("NO", 3) == []
    assert parse_list("0-3,8,10-11\n") == {0, 1, 2, 3, 8, 10, 11}
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    with pytest.raises(OptionValueError, match="CPU_BIND_THREAD=YES is not possible"):
        cores_of_streams("YES", 1)


def test_a_stream_has_the_threads_that_were_given(core, network) -> None:
    config = {"CPU_THREADS_PER_STREAM": "3", "CPU_THROUGHPUT_STREAMS": "2"}
    executable = core.load_network(network, "CPU", config)
    assert executable.get_config("CPU_THREADS_PER_STREAM") == "3"
    assert executable.options.threads_per_stream == 3
    assert CpuOptions().threads_per_stream == available_cores()


def test_the_limit_of_batches_is_kept(core, network, rng) -> None:
    request = core.load_network(network, "CPU", {"DYN_BATCH_LIMIT": "7"}).create_infer_request()
    x = rng.standard_normal((2, 3)).astype("f4")
    request.set_batch(1)
    np.testing.assert_array_equal(request.infer({"x": x})["y"][:1], np.maximum(x[:1], 0))
    request.set_batch(2)
    with pytest.raises(RequestError, match="legal: 1 to 2"):
        request.set_batch(3)
    larger = core.read_network(build([("Relu", ["x"], ["y"], {})], {"x": (5, 3)}, ("y",), {}))
    limited = core.load_network(larger, "CPU", {"DYN_BATCH_LIMIT": "3"}).create_infer_request()
    x = rng.standard_normal((5, 3)).astype("f4")
    np.testing.assert_array_equal(limited.infer({"x": x})["y"], np.maximum(x, 0))
    limited.set_batch(3)
    with pytest.raises(RequestError, match="legal: 1 to 3"):
        limited.set_batch(4)
    for value in ("-1", "many"):
        with pytest.raises(OptionValueError, match="DYN_BATCH_LIMIT"):
            core.load_network(network, "CPU", {"DYN_BATCH_LIMIT": value})


def test_the_executed_graph_is_written_for_graphviz(core, network, tmp_path) -> None:
    loaded = core.load_network(network, "CPU", {"DUMP_EXEC_GRAPH_AS_DOT": str(tmp_path / "a")})
    (path,) = tmp_path.glob("a_*.dot")
    text = path.read_text()
    assert text.startswith("digraph {")
    assert text.count("->") == sum(len(n.inputs) for n in loaded.get_exec_graph_info().nodes())
    assert "ReLU" in text
    with pytest.raises(OptionValueError, match="cannot be written"):
        core.load_network(network, "CPU", {"DUMP_EXEC_GRAPH_AS_DOT": str(path / "b")})
