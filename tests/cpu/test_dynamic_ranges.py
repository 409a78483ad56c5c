"""Scales and zero points of DynamicQuantizeLinear by machine code; ONNX Runtime judges."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from polydevice_cpu.algorithms.by_machine.code import Code
from polydevice_cpu.algorithms.by_machine.rows.ranges import prepared
from polydevice_cpu.onednn.engine import address_of
from tests.cpu.loading import load
from tests.cpu.machine_code import by_machine_code, with_avx512
from tests.guard_pages import SIDES, guarded

pytestmark = with_avx512


def model(size, wanted="qsz"):
    info = helper.make_tensor_value_info
    kinds = {"q": TensorProto.UINT8, "s": TensorProto.FLOAT, "z": TensorProto.UINT8}
    graph = helper.make_graph(
        [helper.make_node("DynamicQuantizeLinear", ["x"], [*kinds], "quantise")],
        "g",
        [info("x", TensorProto.FLOAT, [size])],
        [info(name, kinds[name], None) for name in wanted],
    )
    imports = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()


@pytest.fixture(scope="module")
def session():
    return onnxruntime.InferenceSession(model("n"))


def run(x, scale, zero):
    code = Code.of([prepared(x.size)])
    assert code.bound([address_of(each) for each in (x, scale, zero)])() == 0
    return scale[0], zero[0]


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("mean", [0, 2.5, -2.5, 9, -9])
def test_every_length(session, side, mean):
    rng = np.random.default_rng(abs(int(mean)))
    scale, zero = guarded(side, 4).view(np.float32)[:1], guarded(side, 1)[:1]
    for length in [*range(1, 60), 500, 1003]:
        x = guarded(side, 4 * length).view(np.float32)[:length]
        x[:] = rng.normal(mean, 10.0 ** rng.integers(-4, 4), length)
        got = run(x, scale, zero)
        _, *want = session.run(None, {"x": x})
        assert got == tuple(map(np.ndarray.item, want)), length


@pytest.mark.parametrize("place", [0, 15, 16, 31, 36])
def test_one_number_that_is_none_or_infinite(place):
    scale, zero = np.empty(1, np.float32), np.empty(1, np.uint8)
    x = np.random.default_rng(1).standard_normal(37).astype(np.float32)
    x[place] = np.nan
    found = run(x, scale, zero)
    assert np.isnan(found[0])
    assert found[1] == 0
    for sign in (1, -1):
        x[place] = sign * np.inf
        assert run(x, scale, zero) == (np.inf, 0)


def test_nothing_and_zeros():
    scale, zero = np.empty(1, np.float32), np.full(1, 7, np.uint8)
    assert run(np.empty(0, np.float32), scale, zero) == (1, 0)
    assert run(np.zeros(40, np.float32), scale, zero) == (1, 0)
    assert run(np.full(5, 51, np.float32), scale, zero) == (np.float32(0.2), 0)
    assert run(np.full(5, -51, np.float32), scale, zero) == (np.float32(0.2), 255)
    # 127.5 and 2.5 steps: halves to even
    assert run(np.float32([127.5, -127.5]), scale, zero) == (1, 128)
    assert run(np.float32([252.5, -2.5]), scale, zero) == (1, 2)


@pytest.mark.parametrize("size", [50, "n"])
def test_in_a_network(core, session, size):
    executable = load(core, model(size))
    request, rng = executable.create_infer_request(), np.random.default_rng(2)
    for length in [50] * 3 if size == 50 else [50, 3, 17, 1, 64, 3]:
        feed = {"x": rng.normal(0.5, 2, length).astype(np.float32)}
        for name, want in zip("qsz", session.run(None, feed), strict=True):
            np.testing.assert_array_equal(request.infer(feed)[name], want)
    assert by_machine_code(executable)[0] == "DynamicRange"


@pytest.mark.parametrize("wanted", ["s", "z", "sz", "q", "qs"])
@pytest.mark.parametrize("size", [6, "n"])
def test_of_zeros_whatever_is_wanted(core, wanted, size):
    """Where nothing is quantised, too, the scale is 1 as in ONNX Runtime."""
    proto = model(size, wanted)
    executable, session = load(core, proto), onnxruntime.InferenceSession(proto)
    for x in (np.zeros(6, np.float32), np.float32([0, -1, 3, 0.5, 0, 2]), np.zeros(6, np.float32)):
        made = executable.infer({"x": x})
        for name, want in zip(wanted, session.run(None, {"x": x}), strict=True):
            np.testing.assert_array_equal(made[name], want)
