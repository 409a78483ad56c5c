"""What is quantised at run time and back, by machine code; ONNX Runtime judges."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from polydevice_cpu.algorithms.by_machine.code import Code
from polydevice_cpu.algorithms.by_machine.rows.ranges import rounded
from polydevice_cpu.onednn.engine import address_of
from polydevice_cpu.ops.dynamic_range import rounded_to_range
from polydevice_cpu.passes.integers.ranges import RoundedToRange
from tests.cpu.loading import load, steps
from tests.cpu.machine_code import by_machine_code, missing_vectors, with_vectors
from tests.guard_pages import SIDES, guarded


def model(sizes, scale: str = "s", zero: str = "z") -> bytes:
    """Quantised and dequantised by the same numbers, or by those of others."""
    info, make = helper.make_tensor_value_info, helper.make_node
    nodes = [
        make("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], "quantise"),
        make("Neg", ["x"], ["n"]),
        make("DynamicQuantizeLinear", ["n"], ["q-", "s-", "z-"], "others"),
        make("DequantizeLinear", ["q", scale, zero], ["y"], "back"),
    ]
    graph = helper.make_graph(
        nodes if scale + zero != "sz" else [nodes[0], nodes[-1]],
        "g",
        [info("x", TensorProto.FLOAT, sizes)],
        [info("y", TensorProto.FLOAT, None)],
    )
    imports = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()


@pytest.fixture(scope="module")
def session():
    return onnxruntime.InferenceSession(model(["n"]))


def by_code(x, y):
    told = rounded(x.size)
    assert told is not None
    assert Code.of([told]).bound([address_of(x), address_of(y)])() == 0
    return y


WAYS = [pytest.param("code", marks=with_vectors), "numpy"]


def run(way, x, side="after"):
    if way == "numpy":
        return rounded_to_range(RoundedToRange(), x)
    source, target = (guarded(side, x.nbytes).view(np.float32)[: x.size] for _ in range(2))
    source[:] = x
    return by_code(source, target)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mean", [0, 2.5, -2.5, 9, -9])
def test_every_length(session, way, side, mean):
    rng = np.random.default_rng(abs(int(mean)))
    for length in [*range(1, 40), 500, 1003]:
        x = rng.normal(mean, 10.0 ** rng.integers(-4, 4), length).astype(np.float32)
        (want,) = session.run(None, {"x": x})
        np.testing.assert_array_equal(run(way, x, side), want, err_msg=str(length))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 7, 8, 31, 36])
def test_one_number_that_is_none_or_infinite(way, odd, place):
    x = np.random.default_rng(1).standard_normal(37).astype(np.float32)
    x[place] = odd
    with np.errstate(invalid="ignore"):
        assert np.isnan(run(way, x)).all()


@pytest.mark.parametrize("way", WAYS)
def test_literals(way):
    assert run(way, np.zeros(9, np.float32)).tolist() == [0] * 9
    assert run(way, np.full(5, 51, np.float32)).tolist() == [51] * 5
    # 255 steps of 1, of which 127.5 are below 0: halves to even
    x = np.float32([127.5, -127.5, 0.5, 1.5, 2.4, -0.4])
    found = run(way, x)
    assert found.tolist() == [127, -128, 0, 2, 2, 0]
    assert not np.signbit(found[-1])  # no zero is negative


@pytest.mark.parametrize("sizes", [[3, 5, 7], ["n", 5, "m"]])
def test_in_a_network(core, sizes):
    proto = model(sizes)
    executable, theirs = load(core, proto), onnxruntime.InferenceSession(proto)
    request, rng = executable.create_infer_request(), np.random.default_rng(2)
    for first, last in [(3, 7)] * 3 if sizes[0] == 3 else [(3, 7), (1, 1), (4, 33), (1, 2), (3, 7)]:
        feed = {"x": rng.normal(0.5, 2, (first, 5, last)).astype(np.float32)}
        (want,) = theirs.run(None, feed)
        np.testing.assert_array_equal(request.infer(feed)["y"], want)
    assert [step.type for step in executable.latest_plan().steps] == ["RoundedToRange"]
    if not missing_vectors():
        assert by_machine_code(executable) == ["RoundedToRange"]


@pytest.mark.parametrize("numbers", [("s-", "z"), ("s", "z-"), ("s-", "z-")])
def test_numbers_of_another_range_stay_as_they_are(core, numbers):
    proto = model([20], *numbers)
    executable, theirs = load(core, proto), onnxruntime.InferenceSession(proto)
    feed = {"x": np.random.default_rng(3).normal(1, 2, 20).astype(np.float32)}
    (want,) = theirs.run(None, feed)
    np.testing.assert_allclose(executable.infer(feed)["y"], want, rtol=1e-6)
    assert "RoundedToRange" not in steps(executable)
