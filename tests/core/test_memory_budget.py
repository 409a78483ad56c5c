"""MEMORY_LIMIT: what is counted, what is refused, and how much the machine has."""

from __future__ import annotations

import gc
import itertools
import subprocess
import sys
import threading

import numpy as np
import pytest

from polydevice import Core, bounds
from polydevice.bounds import Bounds, bounded, current_bounds, network_budget, within
from polydevice.dtype import ElementType
from polydevice.errors import DeviceMemoryError, OptionValueError
from polydevice.memory_budget import MemoryBudget, _host_memory_bytes
from polydevice.network import Network
from polydevice.node import Node, constant
from polydevice.ops.activation import Relu, Sigmoid
from polydevice.ops.broadcast import Tile
from polydevice.ops.io import Parameter, Result
from polydevice.options import Options
from polydevice.passes.constant_folding import constant_folding
from polydevice.shape import Shape


class Owner:
    pass


def test_what_is_held_is_given_back():
    budget = MemoryBudget(100, "network 'n'")
    owner = Owner()
    budget.hold(owner, 60, "one")
    with pytest.raises(DeviceMemoryError, match="two needs 41 bytes; network 'n' uses 60 already"):
        budget.take(41, "two")
    budget.take(40, "three")
    budget.check(0, "nothing")
    budget.give(40)
    del owner
    gc.collect()
    assert budget.used_bytes == 0
    budget.check(100, "all")


def test_counts_from_many_threads():
    budget = MemoryBudget(1 << 40, "n")

    def work() -> None:
        for _ in range(1000):
            budget.take(3, "x")
            budget.give(2)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert budget.used_bytes == 4000


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, None),
        ({"memory.max": "max\n"}, None),
        ({"memory.max": "123456\n"}, 123456),
        ({"memory/memory.limit_in_bytes": "65536\n"}, 65536),
        ({"memory/memory.limit_in_bytes": str((1 << 63) - 4096)}, None),
        ({"memory.max": "7000", "memory/memory.limit_in_bytes": "6000"}, 6000),
        ({"memory.max": "max", "a/memory.max": "5000", "a/b/memory.max": "6000"}, 5000),
        ({"a/b/memory.max": "4000", "a/b/c/memory.max": "3000"}, 4000),
        ({"unified/a/b/memory.max": "4500"}, 4500),
        ({"memory/x/memory.limit_in_bytes": "2000"}, 2000),
        ({"memory/x/y z/memory.limit_in_bytes": "1000", "memory/x/q": "1"}, 1000),
        ({"cpu/x/y z/memory.max": "1", "other/memory.max": "2"}, None),
    ],
)
def test_the_machine_and_its_control_groups(tmp_path, files, limit):
    membership = tmp_path / "cgroup"
    whole = _host_memory_bytes(tmp_path / "none", membership)
    assert whole > 1 << 28
    membership.write_text("12:pids:/p\n4:cpu,memory:/x/y z\n3:name=systemd:/\n0::/a/b\n")
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert _host_memory_bytes(tmp_path, membership) == (limit or whole)


def test_control_groups_of_a_container_whose_path_is_the_machines(tmp_path):
    membership = tmp_path / "cgroup"
    membership.write_text("4:memory:/docker/1234\n0::/../docker/1234\n")
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("8192")
    assert _host_memory_bytes(tmp_path, membership) == 8192


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), (4096, 4096), ("64K", 65536), ("1 MiB", 1 << 20), ("2g", 2 << 30), ("3TB", 3 << 40)],
)
def test_bytes_with_units(text, number):
    options = Options().updated({"MEMORY_LIMIT": text})
    assert options.memory_limit == number
    assert options.read("MEMORY_LIMIT") == str(number)


@pytest.mark.parametrize("text", ["", "-1", "1.5G", "G", "12P", "lots", True, 1.0])
def test_illegal_limits(text):
    with pytest.raises(OptionValueError, match="MEMORY_LIMIT.*legal"):
        Options().updated({"MEMORY_LIMIT": text})


def test_a_part_shares_the_budget_of_the_whole():
    whole = MemoryBudget(10, "whole")
    assert network_budget(99, "alone").limit_bytes == 99
    with within(Bounds(memory=whole)):
        assert network_budget(99, "part") is whole
        with pytest.raises(DeviceMemoryError, match="whole"):
            current_bounds().admit(11, "it")
    current_bounds().admit(11, "it")


def folding_network() -> Network:
    made = constant("c", np.array([1, 4, 9], np.float32))
    middle = Node("middle", Sigmoid(), [made.output])
    last = Node("last", Relu(), [middle.output])
    x = Node("x", Parameter(ElementType.f32, Shape((3,))))
    return Network("n", [x], [Node("y", Result(), [last.output])])


def test_folding_that_does_not_end_is_left_to_inference(monkeypatch):
    monkeypatch.setattr(bounds, "AHEAD_SECONDS", 0.05)
    calls = []

    def evaluate(op, inputs):
        calls.append(op.type)
        if op.type == "Sigmoid":
            for _ in bounded(itertools.count()):
                pass
        return [inputs[0]]

    network = folding_network()
    assert constant_folding(network, evaluate) == 0
    assert [node.name for node in network if node.type in ("Sigmoid", "ReLU")] == ["middle", "last"]
    assert calls == ["Sigmoid"]
    network.results[0].inputs = [Node("cheap", Relu(), [network.nodes()[0].output]).output]


def test_all_of_a_network_shares_the_time_for_folding(monkeypatch):
    monkeypatch.setattr(bounds, "AHEAD_SECONDS", 0.05)
    parts = [
        Node(f"n{i}", Relu(), [constant(f"c{i}", np.array([i], np.float32)).output])
        for i in range(50)
    ]
    results = [Node(f"r{node.name}", Result(), [node.output]) for node in parts]
    network = Network("n", [], results)
    calls = []

    def evaluate(op, inputs):
        calls.append(op)
        for _ in bounded(itertools.count()):
            pass

    assert constant_folding(network, evaluate) == 0
    assert len(calls) == 1


def test_folding_makes_a_network_larger_by_so_many_bytes_at_most(monkeypatch):
    """Eight times a node's constants (here 864, 96 and 96 bytes) are free; of 1000 are left 864,
    then 360, which 460 bytes exceed."""
    monkeypatch.setattr("polydevice.passes.constant_folding.SIZE_LIMIT", 1000)
    results = []
    for number, (elements, repeats) in enumerate([(25, 10), (1, 150), (1, 115)]):
        given = [np.ones(elements, np.float32), np.array([repeats])]
        inputs = [constant(f"{number}/{place}", each).output for place, each in enumerate(given)]
        made = Node(f"tile{number}", Tile(), inputs)
        results.append(Node(f"y{number}", Result(), [made.output]))
    network = Network("n", [], results)
    assert constant_folding(network, lambda _, inputs: [np.tile(*inputs)]) == 2
    assert [node.name for node in network.nodes() if node.type == "Tile"] == ["tile2"]


def test_values_computed_ahead_have_a_limit_of_bytes(monkeypatch):
    def evaluate(op, inputs):
        current_bounds().admit(bounds.AHEAD_BYTES + 1, "it")
        raise AssertionError("admitted")

    assert constant_folding(folding_network(), evaluate) == 0


def test_every_device_has_the_keys():
    with Core() as core:
        for family in ("CPU", "HETERO"):
            assert core.get_config(family, "MEMORY_LIMIT") == "0"
            assert core.get_config(family, "INFER_TIMEOUT_MS") == "0"


_PROGRAM = """
import resource, sys
from pathlib import Path
import numpy as np
from onnx import TensorProto, helper
from polydevice import Core, memory_budget
from polydevice.errors import DeviceMemoryError

x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])
pads = helper.make_tensor_value_info("pads", TensorProto.INT64, [2])
y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
node = helper.make_node("Pad", ["x", "pads"], ["y"], name="pad")
graph = helper.make_graph([node], "g", [x, pads], [y])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
if sys.argv[1] == "unnoticed":
    memory_budget.host_memory_bytes()
pages = int(Path("/proc/self/statm").read_text().split()[0])
limit = pages * resource.getpagesize() + (1 << 30)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
with Core() as core:
    executable = core.load_network(core.read_network(model.SerializeToString()), "CPU")
    given = {"x": np.ones(3, np.float32), "pads": np.array([0, 1 << 30])}
    try:
        executable.infer(given)
    except DeviceMemoryError as error:
        print(error)
    given["pads"] = np.array([1, 0])
    print(executable.infer(given)["y"])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit of the process")
@pytest.mark.parametrize("limit", ["noticed", "unnoticed"])
def test_what_the_process_may_not_have_is_refused_by_name(limit):
    """Padding to 4 GiB with 1 GiB left: before it is allocated, or when that fails."""
    command = [sys.executable, "-c", _PROGRAM, limit]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    refused, y = ran.stdout.splitlines() or ("", ran.stderr)
    assert "'pad'" in refused or "'y'" in refused, refused
    assert "MEMORY_LIMIT" in refused
    assert y == "[0. 1. 1. 1.]"
