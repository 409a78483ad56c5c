"""Functions of single numbers by machine code; Python's own functions and ONNX Runtime judge."""

from __future__ import annotations

import math

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice.ops.activation import Sigmoid, SoftPlus
from polydevice_cpu.algorithms.by_machine.functions import Activation
from polydevice_cpu.algorithms.by_machine.rows.pointwise import prepared
from polydevice_cpu.implement import run
from polydevice_cpu.onednn.engine import address_of
from polydevice_cpu.processor import has_bf16, has_f16
from tests.cpu.loading import load
from tests.cpu.machine_code import by_machine_code, with_vectors
from tests.guard_pages import SIDES, guarded

pytestmark = with_vectors


def soft_plus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def logistic(x: float) -> float:
    small = math.exp(-abs(x))
    return (small if x < 0 else 1) / (1 + small)


RIGHT = {
    "softplus": soft_plus, "softsign": lambda x: x / (1 + abs(x)), "erf": math.erf,
    "logistic": logistic,
}  # fmt: skip
ONNX = {"softplus": "Softplus", "softsign": "Softsign", "erf": "Erf"}


def right_of(name, x):
    return np.array([RIGHT[name](float(each)) for each in x.flat]).reshape(x.shape)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", RIGHT)
def test_every_number_of_every_length(name, side):
    rng = np.random.default_rng(len(name))
    for length in [*range(1, 50), 1000]:
        x, y = (guarded(side, 4 * length).view(np.float32)[:length] for _ in range(2))
        x[:] = rng.standard_normal(length) * 10.0 ** rng.integers(-6, 3, length)
        code = prepared(Activation(name, 0, 0), length)
        assert code.bound([address_of(x), address_of(y)])() == 0
        np.testing.assert_allclose(y, right_of(name, x), rtol=6e-7, atol=2e-38)


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_no_number_and_what_is_infinite(name):
    x = np.float32([np.nan, np.inf, -np.inf, 0.0, -0.0, 3.4e38, -3.4e38, 1e-45])
    y = np.empty_like(x)
    assert prepared(Activation(name, 0, 0), len(x)).bound([address_of(x), address_of(y)])() == 0
    with np.errstate(all="ignore"):
        ends = {
            "softplus": [np.nan, np.inf, 0, math.log(2), math.log(2), 3.4e38, 0, math.log(2)],
            "softsign": [np.nan, np.nan, np.nan, 0.0, -0.0, 1, -1, 1e-45],
            "erf": [np.nan, 1, -1, 0.0, -0.0, 1, -1, 1e-45],
            "logistic": [np.nan, 1, 0, 0.5, 0.5, 1, 0, 0.5],
        }[name]
    np.testing.assert_allclose(y, ends, rtol=3e-7, atol=3e-45)


@pytest.mark.parametrize("shape", [(63,), (64,), (4, 5, 7), (0, 3), (8, 9, 10)])
def test_arrays_of_any_order(shape):
    """What the device computes node by node, of views as well."""
    rng = np.random.default_rng(len(shape))
    x = rng.normal(size=(*shape[:-1], 2 * shape[-1])).astype(np.float32)[..., ::-2] * 30
    for name, op in (("logistic", Sigmoid()), ("softplus", SoftPlus())):
        (y,) = run(op, [x])
        assert y.dtype == np.float32
        np.testing.assert_allclose(y, right_of(name, x), rtol=6e-7, atol=2e-38)
        (turned,) = run(op, [x.T])
        np.testing.assert_allclose(turned, right_of(name, x.T), rtol=6e-7, atol=2e-38)


def test_threads_share_many_numbers():
    x = np.random.default_rng(4).standard_normal(200_003).astype(np.float32)
    y = np.full_like(x, np.nan)
    code = prepared(Activation("erf", 0, 0), len(x), threads=2)
    for _ in range(3):
        assert code.bound([address_of(x), address_of(y)])() == 0
        np.testing.assert_allclose(y, right_of("erf", x), rtol=6e-7)
        y[:] = np.nan


def behind_a_convolution(kind, size):
    w = np.random.default_rng(5).standard_normal((20, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="c", pads=[1] * 4),
        helper.make_node(kind, ["c"], ["f"], name="f"),
        helper.make_node("Conv", ["f", "v"], ["y"], name="y"),
    ]
    v = np.random.default_rng(6).standard_normal((4, 20, 1, 1)).astype(np.float32)
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [info("x", TensorProto.FLOAT, [1, 3, size, size])],
        [info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(v, "v")],
    )
    imports = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("size", [5, "n"])
@pytest.mark.parametrize("name", ONNX)
def test_in_the_order_in_which_pictures_lie(core, name, size, threads):
    content = behind_a_convolution(ONNX[name], size)
    session = onnxruntime.InferenceSession(content)
    executable = load(core, content, CPU_THREADS_NUM=threads)
    request, rng = executable.create_infer_request(), np.random.default_rng(7)
    for each in [5] * 2 if size == 5 else [5, 7, 4, 9, 40, 6, 5]:
        x = rng.standard_normal((1, 3, each, each)).astype(np.float32)
        want = session.run(None, {"x": x})[0]
        np.testing.assert_allclose(request.infer({"x": x})["y"], want, rtol=1e-4, atol=1e-4)
    assert by_machine_code(executable), executable.explain()


@pytest.mark.parametrize("option", ["ENFORCE_BF16", "ENFORCE_F16"])
def test_numbers_of_two_bytes(core, option):
    if not {"ENFORCE_BF16": has_bf16, "ENFORCE_F16": has_f16}[option]():
        pytest.skip("the processor does not compute with these")
    content = behind_a_convolution("Erf", 6)
    session = onnxruntime.InferenceSession(content)
    request = load(core, content, **{option: True}).create_infer_request()
    x = np.random.default_rng(8).standard_normal((1, 3, 6, 6)).astype(np.float32)
    want = session.run(None, {"x": x})[0]
    np.testing.assert_allclose(request.infer({"x": x})["y"], want, rtol=0.1, atol=0.2)
