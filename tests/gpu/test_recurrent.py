"""Recurrent sequences in one launch: long ones, every activation, new lengths, short ones."""

from __future__ import annotations

import dataclasses
import importlib

import numpy as np
import pytest
from onnx import helper

from polydevice import Core
from polydevice.dtype import ElementType
from polydevice.ops.recurrent import Direction, GRUSequence, LSTMSequence, RNNSequence
from polydevice.ops.reshape import Reshape
from polydevice.testing.op_case import run_case
from polydevice_gpu.compiler.device_target import target_of
from polydevice_gpu.kernels.kernel import kernels_of
from polydevice_gpu.ops import RecurrentSteps
from polydevice_gpu.rewrites.recurrent import MAX_UNROLLED_STEPS
from tests.gpu.graphs import Sketch
from tests.gpu.kernel_cases.data import Data
from tests.gpu.kernel_cases.recurrent import sequence_inputs
from tests.onnx.models import model, onnxruntime_outputs, run, tensor, value
from tests.ops.openvino_oracle import openvino_case

LAYERS = [
    LSTMSequence(hidden_size=33),
    LSTMSequence(hidden_size=20, direction=Direction.BIDIRECTIONAL),
    GRUSequence(hidden_size=21, direction=Direction.REVERSE),
    GRUSequence(hidden_size=18, linear_before_reset=True, direction=Direction.BIDIRECTIONAL),
    RNNSequence(hidden_size=35),
]


@pytest.mark.parametrize("dtype", ["f4", "f2"])
@pytest.mark.parametrize("lengths", [None, [300, 171]], ids=["whole", "lengths"])
@pytest.mark.parametrize("op", LAYERS, ids=str)
def test_three_hundred_steps(opencl, rng, op, lengths, dtype):
    inputs = sequence_inputs(Data(rng, dtype), op, 2, 300, 7, lengths)
    weights = {len(inputs) - 1 - i for i in range(3)}
    # OpenVINO computes f16 in f32; here the product of the inputs is stored as f16.
    tolerance = (2e-2, 2e-2) if dtype == "f2" else None
    case = openvino_case(op, *inputs, constants=weights, tolerance=tolerance)
    run_case(case, "GPU")


def test_a_hidden_state_larger_than_a_work_group(opencl, rng):
    op = GRUSequence(hidden_size=1031)
    inputs = sequence_inputs(Data(rng), op, 1, 6, 3)
    run_case(openvino_case(op, *inputs, constants={3, 4, 5}), "GPU")


def test_double_precision(opencl, rng):
    op = LSTMSequence(hidden_size=9, direction=Direction.BIDIRECTIONAL)
    inputs = sequence_inputs(Data(rng, "f8"), op, 2, 9, 4)
    case = openvino_case(op, *inputs, constants={4, 5, 6}, tolerance=(1e-5, 1e-6))
    run_case(case, "GPU")


@pytest.mark.parametrize("lengths", [[0, 9, -3], [11, 2, 2**31 - 1]])
def test_lengths_outside_of_the_sequence_stay_inside_of_memory(opencl, rng, lengths):
    """They count as 0 and as all steps; what 0 steps give is written in the definition."""
    op = LSTMSequence(hidden_size=6)
    inputs = sequence_inputs(Data(rng), op, 3, 9, 4, lengths)
    given = {f"in{i}": array for i, array in enumerate(inputs)}
    y, h, c = _outputs(op, given)
    inside = given | {"in3": np.clip(inputs[3], 0, 9)}
    for answer, again in zip((y, h, c), _outputs(op, inside), strict=True):
        np.testing.assert_array_equal(answer, again)
    for item, length in enumerate(lengths):
        if length <= 0:
            assert not y[item].any()
            np.testing.assert_array_equal(h[item], inputs[1][item])
            np.testing.assert_array_equal(c[item], inputs[2][item])
        else:
            assert np.all(y[item, :, : min(length, 9)] != 0)
            assert not y[item, :, length:].any()


def _outputs(op, given):
    s = Sketch()
    ports = [
        s.input(name, *array.shape, kind=ElementType.of(array.dtype))
        for name, array in given.items()
    ]
    node = s.node("layer", op, *ports)
    names = [f"out{i}" for i in range(len(node.outputs))]
    network = s.network(**dict(zip(names, node.outputs, strict=True)))
    with Core() as core:
        results = core.load_network(network, "GPU").create_infer_request().infer(given)
        return [results[name].copy() for name in names]


ACTIVATIONS = [
    ("RNN", ["Relu"], [], []),
    ("RNN", ["LeakyRelu"], [0.2], []),
    ("RNN", ["HardSigmoid"], [0.3], [0.4]),
    ("RNN", ["Softsign"], [], []),
    ("RNN", ["Softplus"], [], []),
    ("RNN", ["Elu"], [0.7], []),
    ("RNN", ["Affine"], [0.5], [0.25]),
    ("RNN", ["ScaledTanh"], [1.5], [0.5]),
    ("RNN", ["ThresholdedRelu"], [0.3], []),
    ("GRU", ["HardSigmoid", "Softsign"], [0.3], [0.4]),
    ("LSTM", ["HardSigmoid", "Relu", "Tanh"], [0.3], [0.4]),
]


@pytest.mark.parametrize("clip", [None, 0.3])
@pytest.mark.parametrize(("kind", "names", "alpha", "beta"), ACTIVATIONS)
def test_activations_as_onnx_runtime_computes_them(opencl, rng, kind, names, alpha, beta, clip):
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    hidden, steps, batch, size = 7, 9, 2, 5
    given = {"activation_alpha": alpha, "activation_beta": beta, "clip": clip}
    node = helper.make_node(
        kind, ["x", "w", "r", "b"], ["y", "last"], hidden_size=hidden, activations=names,
        **{name: setting for name, setting in given.items() if setting},
    )  # fmt: skip
    data = Data(rng)
    stored = {
        "w": data(1, gates * hidden, size) / 3,
        "r": data(1, gates * hidden, hidden) / 4,
        "b": data(1, 2 * gates * hidden) / 2,
    }
    proto = model(
        [node],
        [value("x", (steps, batch, size))],
        [value("y", None), value("last", None)],
        initializers=[tensor(name, array) for name, array in stored.items()],
        opset=14,
    )
    x = data(steps, batch, size)
    expected = onnxruntime_outputs(proto, x)
    for result, wanted in zip(run(proto, x, device="GPU"), expected, strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)


def _two_layers(steps=None):
    """x [1, T, 6] through two LSTM layers; T known at load or not."""
    s = Sketch()
    x = s.input("x", 1, -1 if steps is None else steps, 6)
    lengths = s.input("lengths", 1, kind=ElementType.i32)
    y = x
    for layer, size in enumerate((6, 12)):
        state = s.const(f"state{layer}", np.zeros((1, 1, 12), np.float32))
        weights = [
            s.weights(f"{name}{layer}", *shape)
            for name, shape in {"w": (1, 48, size), "r": (1, 48, 12), "b": (1, 48)}.items()
        ]
        op = LSTMSequence(hidden_size=12)
        y = s.add(f"lstm{layer}", op, y, state, state, lengths, *weights)
        shape = s.const(f"shape{layer}", np.array([1, -1, 12]))
        y = s.add(f"flat{layer}", Reshape(special_zero=False), y, shape)
    return s.network(y=y)


def test_a_new_length_builds_no_program(opencl):
    with Core() as core:
        loaded = core.load_network(_two_layers(), "GPU")
        first = loaded.plan(((1, 64, 6), (1,)))
        second = loaded.plan(((1, 96, 6), (1,)))
        assert second is not first
        ids = [{id(program) for program in plan.programs} for plan in (first, second)]
        assert ids[0] == ids[1]  # the very same, nothing was built
        launches = [sum(len(step.launches) for step in plan.steps) for plan in (first, second)]
        assert launches[0] == launches[1] <= 4  # two products, two sequences


def test_a_few_steps_give_the_numbers_of_many(opencl, rng):
    """The first steps of a long sequence, unrolled and in one launch."""
    network = _two_layers()
    x = Data(rng)(1, 40, 6)
    with Core() as core:
        request = core.load_network(network, "GPU").create_infer_request()
        whole = request.infer({"x": x, "lengths": np.array([40], np.int32)})["y"].copy()
        for steps in (1, MAX_UNROLLED_STEPS, MAX_UNROLLED_STEPS + 1):
            few = {"x": x[:, :steps].copy(), "lengths": np.array([steps], np.int32)}
            part = request.infer(few)["y"]
            np.testing.assert_allclose(part, whole[:, :steps], rtol=1e-4, atol=1e-5)


def test_work_groups_have_room_for_their_registers():
    """NVIDIA's compiler uses so many that a group of 512 cannot start (H200, driver 580.159.04)."""
    for kernel in kernels_of(RecurrentSteps):
        assert max(mode["LANES"] for mode in kernel.modes) <= 256


@pytest.mark.parametrize(
    ("hidden", "direction", "unrolled"),
    [
        (300, Direction.FORWARD, True),
        (256, Direction.FORWARD, False),
        pytest.param(300, Direction.BIDIRECTIONAL, False, marks=pytest.mark.full),
        pytest.param(370, Direction.BIDIRECTIONAL, True, marks=pytest.mark.full),
    ],
)
def test_large_weights_are_not_read_by_one_processor(
    opencl, rng, monkeypatch, hidden, direction, unrolled
):
    target = dataclasses.replace(
        target_of(opencl), scalar_lanes=32, local_memory_bytes=32768, max_work_group_size=1024
    )
    executable = importlib.import_module("polydevice_gpu.compiler.compiler")
    monkeypatch.setattr(executable, "target_of", lambda _: target)
    op = LSTMSequence(hidden_size=hidden, direction=direction)
    inputs = sequence_inputs(Data(rng), op, 2, 6, 3)
    run_case(openvino_case(op, *inputs, constants={4, 5, 6}), "GPU")
    s = Sketch()
    values = [
        s.const(f"constant{n}", a) if n > 3 else s.input(f"input{n}", *a.shape, kind=kind)
        for n, (a, kind) in enumerate(
            (a, ElementType.i32 if n == 3 else ElementType.f32) for n, a in enumerate(inputs)
        )
    ]
    with Core() as core:
        explained = core.load_network(s.network(y=s.add("lstm", op, *values)), "GPU").explain()
    assert ("recurrent_group" not in explained) is unrolled
