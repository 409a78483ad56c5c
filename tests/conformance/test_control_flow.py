"""TensorIterator, Loop and If as IR, against OpenVINO."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from polydevice import Core
from polydevice.errors import UnsupportedNetworkError
from tests.core.ir_text import body, constant, edges, layer, mapped, net, parameter, result

from .tolerances import differences

openvino = pytest.importorskip("openvino", reason="these tests compare with OpenVINO")
RANDOM = np.random.default_rng(11)


def floats(*shape: int) -> np.ndarray:
    return RANDOM.uniform(-2, 2, shape).astype(np.float32)


def same_answers(
    device: str, topology: bytes, weights: bytes, feeds: dict[str, np.ndarray]
) -> None:
    found: list[list[np.ndarray]] = []
    # Written out, and as loops that stay loops.
    configs = [{}, {"GPU_ENABLE_LOOP_UNROLLING": "NO"}] if device.startswith("GPU") else [{}]
    with Core() as core:
        network = core.read_network(topology, weights)
        for config in configs:
            try:
                executable = core.load_network(network, device, config)
            except UnsupportedNetworkError as error:
                if device == "CPU":
                    raise
                pytest.skip(f"{device}: {error}")
            for _ in range(2):
                answers = executable.infer(feeds)
                found.append([np.array(answers[name]) for name in network.outputs])
    model = openvino.Core().read_model(topology, openvino.Tensor(np.frombuffer(weights, np.uint8)))
    compiled = openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    request = compiled.create_infer_request()
    for port in compiled.inputs:
        name = port.get_node().get_friendly_name()
        request.set_tensor(port, openvino.Tensor(np.array(feeds[name], order="C")))
    request.infer()
    for index in range(len(compiled.outputs)):
        want = np.array(request.get_output_tensor(index).data)
        for answer in found:
            assert not differences(answer[index], want, ""), f"output {index}"


PART = "FP32"


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("size", [1, 2])
def test_tensor_iterator(reverse: bool, size: int, device: str) -> None:
    """s ← s·k + part, over the second axis; all states joined, the last one, and the last part."""
    part, whole = (2, size, 3), (2, 6, 3)
    cut = f'axis="1" part_size="{size}"'
    cut += f' start="-1" end="0" stride="-{size}"' if reverse else f' stride="{size}"'
    two = [(0, PART, part), (1, PART, part)]
    inside = mapped([f"0 0 {cut}", "1 1", "2 2"], [f"3 5 {cut}", "4 5", "5 6"], [(5, 1)]) + body(
        parameter(0, "part", part)
        + parameter(1, "state", part)
        + parameter(2, "factor", (1,))
        + layer(
            3, "scaled", "Multiply", None, [(0, PART, part), (1, PART, (1,))], [(2, PART, part)]
        )
        + layer(4, "next", "Add", None, two, [(2, PART, part)])
        + result(5, "state out", part)
        + result(6, "part out", part),
        edges((1, 0, 3, 0), (2, 0, 3, 1), (3, 2, 4, 0), (0, 0, 4, 1), (4, 2, 5, 0), (0, 0, 6, 0)),
    )
    topology = net(
        parameter(0, "x", whole)
        + parameter(1, "start", part)
        + parameter(2, "k", (1,))
        + layer(
            3, "iterate", "TensorIterator", None,
            [(0, PART, whole), (1, PART, part), (2, PART, (1,))],
            [(3, PART, whole), (4, PART, part), (5, PART, part)], inside=inside,
        )
        + result(4, "all", whole)
        + result(5, "last", part)
        + result(6, "part", part),
        edges((0, 0, 3, 0), (1, 0, 3, 1), (2, 0, 3, 2), (3, 3, 4, 0), (3, 4, 5, 0), (3, 5, 6, 0)),
    )  # fmt: skip
    feeds = {"x": floats(*whole), "start": floats(*part), "k": np.float32([0.5])}
    same_answers(device, topology, b"\0", feeds)


def loop(*, trips: int | None, limit: int) -> tuple[bytes, bytes]:
    """Doubles x while the iteration's number is below the limit; joins all and returns the last.

    `trips` None makes the trip count an input.
    """
    row = (1, 3)
    inside = mapped(
        ["2 1", '-1 0 purpose="current_iteration"'],
        ["3 6", '4 6 axis="0"', '-1 5 purpose="execution_condition"'],
        [(6, 1)],
    ) + body(
        parameter(0, "i", (), "i64")
        + parameter(1, "x", row)
        + layer(2, "twice", "Add", None, [(0, PART, row), (1, PART, row)], [(2, PART, row)])
        + constant(3, "limit", (), 0, 8, "i64")
        + layer(4, "less", "Less", None, [(0, "I64", ()), (1, "I64", ())], [(2, "BOOL", ())])
        + result(5, "go on", (), "boolean")
        + result(6, "x out", row),
        edges(
            (1, 0, 2, 0), (1, 0, 2, 1), (0, 0, 4, 0), (3, 0, 4, 1), (4, 2, 5, 0), (2, 2, 6, 0)
        ),
    )  # fmt: skip
    count = parameter(0, "trips", (), "i64")
    if trips is not None:
        count = constant(0, "trips", (), 8, 8, "i64")
    topology = net(
        count
        + constant(1, "yes", (), 16, 1, "boolean")
        + parameter(2, "x", row)
        + layer(
            3, "loop", "Loop", None, [(0, "I64", ()), (1, "BOOL", ()), (2, PART, row)],
            [(3, PART, row), (4, PART, (-1, 3))], version="opset5", inside=inside,
        )
        + result(4, "last", row)
        + result(5, "all", (-1, 3)),
        edges((0, 0, 3, 0), (1, 0, 3, 1), (2, 0, 3, 2), (3, 3, 4, 0), (3, 4, 5, 0)),
    )  # fmt: skip
    return topology, np.int64([limit, trips or 0]).tobytes() + b"\x01"


@pytest.mark.parametrize(("trips", "limit"), [(4, 99), (10, 3), (-1, 5), (1, 0)])
def test_loop(trips: int, limit: int, device: str) -> None:
    same_answers(device, *loop(trips=trips, limit=limit), {"x": floats(1, 3)})


@pytest.mark.parametrize("trips", [1, 3, 7])
def test_loop_with_a_trip_count_that_is_an_input(trips: int, device: str) -> None:
    feeds = {"x": floats(1, 3), "trips": np.array(trips, np.int64)}
    same_answers(device, *loop(trips=None, limit=5), feeds)


def branch(
    side: str, layers: str, links: str, inputs: Iterable[str], outputs: Iterable[str]
) -> str:
    ports = mapped(inputs, outputs, []).partition("</port_map>")[0].removeprefix("<port_map>")
    return (
        f"<{side}_port_map>{ports}</{side}_port_map>"
        f"<{side}_body><layers>{layers}</layers><edges>{links}</edges></{side}_body>"
    )


@pytest.mark.parametrize("condition", [True, False])
@pytest.mark.parametrize("known", [True, False])
def test_if(condition: bool, known: bool, device: str) -> None:
    """Then: relu(x) and x + y; else: -y of another shape, and x. The condition may be constant."""
    two = [(0, PART, (2, 3)), (1, PART, (1, 3))]
    then = branch(
        "then",
        parameter(0, "a", (2, 3))
        + parameter(1, "b", (1, 3))
        + layer(2, "relu", "ReLU", None, two[:1], [(1, PART, (2, 3))])
        + layer(3, "sum", "Add", None, two, [(2, PART, (2, 3))])
        + result(4, "r", (2, 3))
        + result(5, "s", (2, 3)),
        edges((0, 0, 2, 0), (0, 0, 3, 0), (1, 0, 3, 1), (2, 1, 4, 0), (3, 2, 5, 0)),
        ["1 0", "2 1"],
        ["3 4", "4 5"],
    )
    otherwise = branch(
        "else",
        parameter(0, "b", (1, 3))
        + layer(1, "minus", "Negative", None, [(0, PART, (1, 3))], [(1, PART, (1, 3))])
        + result(2, "m", (1, 3))
        + parameter(3, "a", (2, 3))
        + result(4, "same", (2, 3)),
        edges((0, 0, 1, 0), (1, 1, 2, 0), (3, 0, 4, 0)),
        ["2 0", "1 3"],
        ["3 2", "4 4"],
    )
    given = constant(0, "c", (), 0, 1, "boolean") if known else parameter(0, "c", (), "boolean")
    topology = net(
        given
        + parameter(1, "x", (2, 3))
        + parameter(2, "y", (1, 3))
        + layer(
            3, "choose", "If", None, [(0, "BOOL", ()), (1, PART, (2, 3)), (2, PART, (1, 3))],
            [(3, PART, (-1, 3)), (4, PART, (2, 3))], version="opset8", inside=otherwise + then,
        )
        + result(4, "first", (-1, 3))
        + result(5, "second", (2, 3)),
        edges((0, 0, 3, 0), (1, 0, 3, 1), (2, 0, 3, 2), (3, 3, 4, 0), (3, 4, 5, 0)),
    )  # fmt: skip
    feeds = {"x": floats(2, 3), "y": floats(1, 3)}
    if not known:
        feeds["c"] = np.array(condition)
    same_answers(device, topology, bytes([condition]), feeds)
