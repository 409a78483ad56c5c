"""Configuration keys of the CPU device, as they are read back."""

from __future__ import annotations

import pytest

from polydevice import Core
from polydevice_cpu.options import available_cores
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
