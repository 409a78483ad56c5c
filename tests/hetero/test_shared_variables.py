"""HETERO and variables: they stay on the device that reads and assigns them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from polydevice import Copies, ElementType, RemoteBlob, Shape
from polydevice.network import Network
from polydevice.node import Node, constant
from polydevice.ops.arithmetic import Add, Multiply
from polydevice.ops.concat import Concat
from polydevice.ops.io import Parameter, Result
from polydevice.ops.state import Assign, ReadValue
from polydevice.shape import Dim
from tests.hetero.networks import held, normal, place

F32 = ElementType.f32


def memory(start: Callable[[Node], Node] | None = None, shape: tuple[int, ...] = (3,)) -> Network:
    """y = tanh(total + x); total = total + x: GPU reads and assigns, CPU computes tanh."""
    x = Node("x", Parameter(F32, Shape(shape)))
    given = [] if start is None else [start(x).output]
    read = Node("read", ReadValue("total", F32, Shape(shape)), given)
    total = Node("sum", Add(), [read.output, x.output])
    assign = Node("assign", Assign("total"), [total.output])
    late = Node("late", Multiply(), [total.output, constant("one", np.float32(1)).output])
    after = Node("after", Add(), [late.output, read.output])
    results = [Node(n, Result(output_name=n), [p.output]) for n, p in (("y", late), ("z", after))]
    return Network("memory", [x], results, [assign])


@pytest.mark.parametrize("start", [None, 10.0])
def test_variables_stay_on_the_device(core, start) -> None:
    """The part that reads the old value last runs after the one that assigns the new value."""
    begin = None if start is None else lambda x: constant("start", np.full(3, start, "f4"))
    network = place(memory(begin), lambda node: "CPU" if node.name == "late" else "GPU")
    request = core.load_network(network, "HETERO:GPU,CPU").create_infer_request()
    x = np.array([1, 2, 3], "f4")
    for _ in range(2):
        total = np.full(3, start or 0, "f4")
        for count in range(4):
            found = request.infer({"x": x})
            np.testing.assert_array_equal(found["y"], total + x)
            np.testing.assert_array_equal(found["z"], total + x + total)
            total = total + x
            if count:  # up: x, late; down: total for late, z. The variable is in neither.
                assert request.copies == Copies(uploads=2, downloads=2)
        (variable,) = request.query_state()
        np.testing.assert_array_equal(variable.state, total)
        variable.state = np.array([5, 5, 5], "f4")
        np.testing.assert_array_equal(request.infer({"x": x})["y"], x + 5)
        variable.reset()


def test_variables_take_turns_in_two_blobs(core) -> None:
    network = place(memory(), lambda node: "CPU" if node.name == "late" else "GPU")
    request = core.load_network(network, "HETERO:GPU,CPU").create_infer_request()
    seen = []
    for _ in range(6):
        request.infer({"x": np.ones(3, "f4")})
        seen.append(request.runner._variables[0].value)
    assert all(isinstance(blob, RemoteBlob) for blob in seen)
    assert len({id(blob) for blob in seen}) == 2
    assert seen[-1] is not seen[-2]


def test_the_first_value_is_computed_in_a_part_of_its_own(core, monkeypatch) -> None:
    """GPU, then GPU: the part that begins passes its value to the one that goes on."""
    two = constant("two", np.float32(2))
    network = memory(lambda x: Node("doubled", Multiply(), [x.output, two.output]))
    place(network, lambda node: "GPU")
    executable = core.load_network(network, "HETERO:GPU,CPU", {"PERF_COUNT": "YES"})
    assert [part.device for part in executable.subgraphs] == ["GPU", "GPU"]
    request = executable.create_infer_request()
    x = np.array([1, 2, 3], "f4")
    np.testing.assert_array_equal(request.infer({"x": x})["y"], 3 * x)
    assert request.copies == Copies(uploads=1, downloads=2)
    assert any(name.startswith("subgraph0: ") for name in request.get_perf_counts())

    def never(stream: int) -> None:
        raise AssertionError("the first value is known")

    monkeypatch.setattr(request.runner.parts[0].runner, "run", never)
    for count in (4, 5, 6):
        np.testing.assert_array_equal(request.infer({"x": x})["y"], count * x)
        assert request.copies == Copies(uploads=1, downloads=2)
        assert {name[:9] for name in request.get_perf_counts()} == {"subgraph1"}
    monkeypatch.undo()
    request.query_state()[0].reset()
    np.testing.assert_array_equal(request.infer({"x": x})["y"], 3 * x)
    fresh = executable.create_infer_request()
    fresh.query_state()[0].state = x
    np.testing.assert_array_equal(fresh.infer({"x": x})["y"], 2 * x)
    assert {name[:9] for name in fresh.get_perf_counts()} == {"subgraph1"}


def test_a_variable_that_grows(core) -> None:
    x = Node("x", Parameter(F32, Shape([Dim(0, None), 3])))
    start = constant("nothing", np.zeros((0, 3), np.float32))
    read = Node("read", ReadValue("list", F32, Shape([Dim(0, None), 3])), [start.output])
    longer = Node("longer", Concat(axis=0), [read.output, x.output])
    assign = Node("assign", Assign("list"), [longer.output])
    late = Node("late", Multiply(), [longer.output, constant("two", np.float32(2)).output])
    result = Node("y", Result(output_name="y"), [late.output])
    network = Network("growing", [x], [result], [assign])
    place(network, lambda node: "CPU" if node.name == "late" else "GPU")
    request = core.load_network(network, "HETERO:GPU,CPU").create_infer_request()
    for _ in range(2):
        known = np.zeros((0, 3), "f4")
        for rows in (2, 1, 4):
            x = normal(rows, 3)
            known = np.concatenate([known, x])
            np.testing.assert_array_equal(request.infer({"x": x})["y"], known * 2)
        assert request.copies == Copies(uploads=1, downloads=1)
        (variable,) = request.query_state()
        np.testing.assert_array_equal(variable.state, known)
        variable.reset()


def test_a_variable_in_the_users_memory_is_copied(core) -> None:
    """What the user may overwrite is no place for a variable."""
    x = Node("x", Parameter(F32, Shape([3])))
    read = Node("read", ReadValue("total", F32, Shape([3])))
    total = Node("sum", Add(), [read.output, x.output])
    results = [Node("y", Result(output_name="y"), [total.output])]
    network = Network("sum", [x], results, [Node("assign", Assign("total"), [total.output])])
    executable = core.load_network(network, "HETERO:GPU,CPU")
    request = executable.create_infer_request()
    blob = executable.get_context().create_blob(executable.outputs["y"].desc)
    one = np.ones(3, "f4")
    for count in range(1, 7):
        if count == 3:
            request.set_blob("y", blob)
        if count == 5:
            request.set_blob("y", np.zeros(3, "f4"))
        found = request.infer({"x": one})
        value = held(blob) if count in (3, 4) else found["y"]
        np.testing.assert_array_equal(value, count * one)
        blob.copy_from(np.full(3, 100, "f4"))
