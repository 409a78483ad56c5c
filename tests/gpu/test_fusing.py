"""What the passes make of small networks, as text, and that results stay the same."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.ops.activation import Clamp, PRelu, Relu, Sigmoid
from polydevice.ops.arithmetic import Add, Multiply, Subtract
from polydevice.ops.concat import Concat
from polydevice.ops.convert import Convert
from polydevice.ops.math import Identity
from polydevice.ops.normalization import BatchNormInference
from polydevice.ops.pooling import MaxPool
from polydevice.ops.quantize import FakeQuantize
from polydevice.ops.reshape import Reshape
from polydevice.ops.split import Split
from polydevice.ops.transpose import Transpose
from polydevice_gpu import cl
from polydevice_gpu.compiler.settings import CompileSettings
from polydevice_gpu.custom.layer import read_layers
from tests.gpu.graphs import (
    Sketch,
    check_answers,
    compiled,
    loaded,
    openvino_answers,
    random_inputs,
)

F32 = ElementType.f32


@pytest.fixture(scope="module")
def builder(opencl):
    return cl.ProgramBuilder(opencl)


def lines(graph) -> list[str]:
    """The nodes without the descriptions of their results."""
    return [repr(node).split("] = ", 1)[1] for node in graph.nodes]


def test_any_number_of_simple_layers_in_any_order_joins_the_convolution():
    s = Sketch()
    x = s.input("x", 1, 8, 6, 6)
    y = s.conv("conv", x, 16)
    y = s.add("bias", Add(), y, s.weights("b", 1, 16, 1, 1))
    y = s.add("relu", Relu(), y)
    y = s.add("scale", Multiply(), y, s.weights("m", 16, 1, 1))
    y = s.add("prelu", PRelu(), y, s.weights("p", 16))
    limits = [s.const(f"l{i}", np.float32(v)) for i, v in enumerate((-1, 1, -1, 1))]
    y = s.add("quantize", FakeQuantize(levels=16), y, *limits)
    y = s.add("clamp", Clamp(min=0.0, max=0.5), y)
    graph = compiled(s.network(y=y), vector_width=8)
    conv = graph.nodes[-1]
    assert [n.choice.kernel.name for n in graph.nodes] == ["elementwise_ref", "convolution_direct"]
    assert str(conv.epilogue) == (
        "Clamp(FakeQuantize(PReLU(Multiply(ReLU(Add(i0, i1)), i2), i3), i4, i5, i6, i7))"
    )
    assert conv.origins == ["conv", "bias", "relu", "scale", "prelu", "quantize", "clamp"]


def test_a_residual_sum_joins_the_convolution_that_runs_last():
    s = Sketch()
    x = s.input("x", 1, 4, 5, 5)
    first = s.conv("first", x, 8, 1)
    second = s.conv("second", s.conv("between", x, 8), 8)
    y = s.add("relu", Relu(), s.add("sum", Add(), first, second))
    graph = compiled(s.network(y=y))
    last = graph.nodes[-1]
    assert last.name == "second"
    assert str(last.epilogue) == "ReLU(Add(i1, i0))"
    assert last.extra_inputs[0].name == "first"


def test_a_residual_sum_leaves_the_way_around_to_run_beside_the_block():
    """It joins the convolution that waits for others, whichever stands last."""
    s = Sketch()
    x = s.input("x", 1, 4, 5, 5)
    block = s.conv("third", s.conv("second", s.conv("first", x, 8), 8), 8)
    graph = compiled(s.network(y=s.add("sum", Add(), block, s.conv("around", x, 8, 1))))
    assert [node.name for node in graph.nodes] == ["first", "second", "around", "third"]
    assert graph.nodes[-1].extra_inputs[0].name == "around"


def test_pooling_takes_a_fake_quantize():
    s = Sketch()
    x = s.input("x", 1, 3, 6, 6)
    y = s.add("pool", MaxPool(kernel=(2, 2), strides=(2, 2)), x)
    limits = [s.const(f"l{i}", np.float32(v)) for i, v in enumerate((0, 2, 0, 2))]
    y = s.add("quantize", FakeQuantize(levels=256), y, *limits)
    (node,) = compiled(s.network(y=y)).nodes
    assert node.origins == ["pool", "quantize"]


def test_batch_normalisation_joins_the_convolution():
    s = Sketch()
    y = s.conv("conv", s.input("x", 1, 3, 4, 4), 8)
    parameters = [s.const(n, np.abs(np.arange(8, dtype="f4")) + 1) for n in "gbmv"]
    y = s.add("bn", BatchNormInference(epsilon=1e-3), y, *parameters)
    (node,) = compiled(s.network(y=y)).nodes
    assert str(node.epilogue) == "Add(Multiply(i0, i1), i2)"


def test_pointwise_operations_share_one_launch_and_read_each_input_once():
    s = Sketch()
    x, z = s.input("x", 2, 3, 4), s.input("z", 3, 1)
    y = s.add("mul", Multiply(), s.add("sigmoid", Sigmoid(), x), x)
    y = s.add("sub", Subtract(), s.add("add", Add(), y, z), z)
    graph = compiled(s.network(y=y))
    assert lines(graph)[0].startswith("Subtract(Add(Multiply(Sigmoid(i0), i0), i1), i1)(x, z)")
    assert len(graph.nodes) == 1


def test_a_value_that_is_read_twice_or_is_an_output_is_kept():
    s = Sketch()
    conv = s.conv("conv", s.input("x", 1, 3, 4, 4), 8)
    relu = s.add("relu", Relu(), conv)
    both = s.add("both", Add(), relu, s.add("sigmoid", Sigmoid(), conv))
    graph = compiled(s.network(y=both, conv=conv))
    names = [node.name for node in graph.nodes]
    assert names[0] == "conv"
    assert graph.nodes[0].epilogue is None
    assert len(names) == 2


def test_reshape_transpose_and_split_cost_nothing():
    s = Sketch()
    x = s.input("x", 2, 6, 4)
    y = s.add("turn", Transpose(), x, s.const("order", np.array([0, 2, 1])))
    parts = s.node("split", Split(num_splits=2), y, s.const("axis", np.array(2)))
    y = s.add("sum", Add(), *parts.outputs)
    y = s.add("flat", Reshape(), y, s.const("shape", np.array([2, 12])))
    graph = compiled(s.network(y=y))
    assert [(node.name, node.is_view) for node in graph.nodes[:3]] == [
        ("turn", True),
        ("split", True),
        ("sum", False),
    ]


def test_convolutions_write_into_their_concatenation():
    s = Sketch()
    x = s.input("x", 2, 4, 5, 5)
    a, b = s.conv("a", x, 8), s.conv("b", x, 16)
    graph = compiled(s.network(y=s.conv("last", s.add("concat", Concat(axis=1), a, b), 8, 1)))
    (concat,) = [node for node in graph.nodes if node.name == "concat"]
    assert all(value.memory is concat.output.memory for value in concat.inputs)
    assert [value.layout.offset for value in concat.inputs] == [0, 8]


def test_an_output_is_copied_into_a_concatenation():
    s = Sketch()
    x = s.input("x", 1, 4, 5, 5)
    a, b = s.conv("a", x, 8), s.conv("b", x, 8)
    graph = compiled(s.network(y=s.add("concat", Concat(axis=1), a, b), a=a))
    (concat,) = [node for node in graph.nodes if node.name == "concat"]
    inside = [value.memory is concat.output.memory for value in concat.inputs]
    assert inside == [False, True]


def test_the_first_second_and_hundredth_run_agree(opencl, builder):
    s = Sketch()
    x = s.input("x", 1, 4, 6, 5)
    y = s.add("relu", Relu(), s.conv("a", x, 8))
    y = s.add("concat", Concat(axis=1), y, s.conv("b", x, 8))
    network = s.network(y=s.add("sum", Add(), s.conv("c", y, 4), x))
    executable = loaded(network, opencl, builder)
    inputs, others = random_inputs(network, 1), random_inputs(network, 2)
    one, two = executable.create_infer_request(), executable.create_infer_request()
    first, second = one.infer(inputs)["y"].copy(), two.infer(others)["y"].copy()
    for _ in range(99):  # interleaved, each with memory of its own
        again, other = one.infer(inputs)["y"], two.infer(others)["y"]
    assert np.array_equal(first, again)
    assert np.array_equal(second, other)


def test_an_operation_that_does_nothing_costs_nothing(opencl, builder):
    s = Sketch()
    x = s.input("x", 1, 8, 6, 5)
    y = s.add("second", Identity(), s.conv("conv", s.add("first", Identity(), x), 8))
    order = s.const("order", np.array([0, 1, 2, 3]))
    same = s.add("turn", Transpose(), s.add("same", Convert(destination_type=F32), y), order)
    network = s.network(y=s.conv("last", same, 4), second=y, first=s.add("third", Identity(), x))
    names = {node.name for node in compiled(network).nodes if not node.is_view}
    assert names == {"x/reorder", "conv", "turn/reorder", "last"}
    check_answers(network, opencl, builder)


@pytest.mark.parametrize("kind", [ElementType.f16, ElementType.bf16], ids=str)
@pytest.mark.parametrize("columns", [1, 64])
def test_a_conversion_rounds_although_nothing_is_stored(opencl, builder, kind, columns):
    """NumPy and ml_dtypes are the judges; vectors and single elements."""
    bits = np.random.default_rng(1).integers(0, 1 << 32, (4096, columns), np.uint32)
    given = bits.view(np.float32).copy()
    edge = [0.0, -0.0, np.inf, -np.inf, np.nan, 65504, 65519.99, 65520, -65520, 6e-8, 2.9e-8, 2e-8]
    given[: len(edge), 0] = edge
    given[2048:] = np.random.default_rng(2).standard_normal((2048, columns)) * 1e-4
    s = Sketch()
    y = s.add("narrow", Convert(destination_type=kind), s.input("x", 4096, columns))
    y = s.add("wide", Convert(destination_type=F32), y)
    network = s.network(y=s.add("twice", Multiply(), y, s.const("two", np.float32(2))))
    assert len(compiled(network).nodes) == 1
    found = loaded(network, opencl, builder).create_infer_request().infer({"x": given})
    with np.errstate(all="ignore"):
        wanted = given.astype(kind.dtype).astype(np.float32) * np.float32(2)
    np.testing.assert_array_equal(found["y"], wanted)


def test_a_custom_layer_is_never_fused(opencl, builder, tmp_path):
    (tmp_path / "own.cl").write_text(
        "__kernel void own(const __global float* in, __global float* out)"
        "{ const int i = get_global_id(0); out[i] = in[i] * 2.0f; }"
    )
    text = (
        '<CustomLayer name="ReLU" type="SimpleGPU" version="1"><Kernel entry="own">'
        '<Source filename="own.cl"/></Kernel><Buffers>'
        '<Tensor arg-index="0" type="input" port-index="0" format="BFYX"/>'
        '<Tensor arg-index="1" type="output" port-index="0" format="BFYX"/></Buffers>'
        '<WorkSizes global="B*F*Y*X"/></CustomLayer>'
    )
    (tmp_path / "own.xml").write_text(text)
    s = Sketch()
    y = s.add("relu", Relu(), s.conv("conv", s.input("x", 1, 4, 5, 6), 8))
    network = s.network(y=s.add("shift", Add(), y, s.weights("b", 8, 1, 1)))
    given = CompileSettings(custom_layers=read_layers(str(tmp_path / "own.xml")))
    executable = loaded(network, opencl, builder, settings=given)
    inputs = random_inputs(network)
    found = executable.create_infer_request().infer(inputs)["y"].copy()
    origins = [node.origins for node in executable.latest_plan().graph.nodes if node.origins]
    assert origins == [["conv"], ["relu"], ["shift"]]
    (plain,) = openvino_answers(s.network(c=y.node.inputs[0]), inputs).values()
    constant = next(node.constant for node in network.nodes() if node.name == "b")
    np.testing.assert_allclose(found, plain * 2 + constant, 1e-4, 1e-5)


def test_several_streams_fuse_residual_sums_too(opencl, builder):
    """The Inference Engine fused them with one stream only."""
    s = Sketch()
    x = s.input("x", 1, 8, 6, 5)
    y = s.add("sum", Add(), s.conv("b", s.add("relu", Relu(), s.conv("a", x, 8)), 8), x)
    network = s.network(y=s.add("last", Relu(), y))
    executable = loaded(network, opencl, builder, throughput_streams=2)
    requests = [executable.create_infer_request() for _ in range(3)]
    inputs = [random_inputs(network, seed) for seed in range(3)]
    for request, given in zip(requests, inputs, strict=True):
        request.start_async(given)
    for request, given in zip(requests, inputs, strict=True):
        request.wait()
        wanted = openvino_answers(network, given)["y"]
        np.testing.assert_allclose(np.asarray(request.output_blobs["y"]), wanted, 1e-4, 1e-5)
    (last,) = [n for n in executable.latest_plan().graph.nodes if n.name == "b"]
    assert last.origins == ["b", "sum", "last"]
