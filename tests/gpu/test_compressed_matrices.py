"""Matrices of 4 and 8 bits are read as they are stored, however they are spelled."""

from __future__ import annotations

import dataclasses
import importlib

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice.dtype import ElementType
from polydevice.network import Network
from polydevice.node import Node, constant
from polydevice.ops.arithmetic import Multiply, Subtract
from polydevice.ops.convert import Convert
from polydevice.ops.io import Parameter, Result
from polydevice.ops.matmul import MatMul
from polydevice.ops.reshape import Reshape
from polydevice.shape import Shape
from polydevice_gpu.cl.programs import warp_groups
from polydevice_gpu.compiler.device_target import target_of
from polydevice_gpu.kernels.product.matmul_compressed import (
    MatmulCompressedFed,
    MatmulCompressedMma,
)
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.ops import CompressedMatMul
from polydevice_gpu.rewrites.compressed import compress_products
from tests.gpu import graphs
from tests.gpu.mma_in_c import in_c
from tests.gpu.trials import only

ROWS, TERMS, COLUMNS, BLOCK = 2, 256, 19, 64
BLOCKS = TERMS // BLOCK


def _compressed(network: Network) -> int:
    compress_products(network, Target(), least=1)
    return sum(isinstance(node.op, CompressedMatMul) for node in network.nodes())


def _check(core, network, x, right) -> None:
    assert _compressed(network) == 1
    request = core.load_network(network, "GPU").create_infer_request()
    for _ in range(2):
        (answer,) = request.infer({"x": x}).values()
        np.testing.assert_allclose(answer, right, rtol=1e-4, atol=1e-4 * np.abs(right).max())


def _onnx(nodes, stored, terms=TERMS) -> bytes:
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [ROWS, terms])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [ROWS, COLUMNS])]
    kept = [numpy_helper.from_array(array, name) for name, array in stored.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, kept)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()


def _numbers(packed, bits):
    """What bytes hold along the last axis, of 4 bits the lower half first."""
    if bits == 8:
        return packed.astype(np.int64)
    both = np.stack([packed & 15, packed >> 4], axis=-1)
    return both.reshape(*packed.shape[:-1], -1).astype(np.int64)


@pytest.mark.parametrize("has_zeros", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
def test_products_of_few_bits(core, bits, has_zeros) -> None:
    rng = np.random.default_rng(bits)
    packed = rng.integers(0, 256, (COLUMNS, BLOCKS, BLOCK * bits // 8)).astype(np.uint8)
    stored = {"w": packed, "s": rng.uniform(0.1, 1, (COLUMNS, BLOCKS)).astype(np.float32)}
    if has_zeros:
        stored["z"] = rng.integers(0, 256, (COLUMNS, BLOCKS * bits // 8)).astype(np.uint8)
    node = helper.make_node(
        "MatMulNBits", ["x", *stored], ["y"], domain="com.microsoft",
        K=TERMS, N=COLUMNS, bits=bits, block_size=BLOCK,
    )  # fmt: skip
    model = _onnx([node], stored)
    x = rng.standard_normal((ROWS, TERMS)).astype(np.float32)
    q = _numbers(packed, bits).reshape(COLUMNS, BLOCKS, BLOCK)
    z = _numbers(stored["z"], bits) if has_zeros else np.full((COLUMNS, BLOCKS), 1 << bits - 1)
    matrix = (q - z[..., np.newaxis]) * stored["s"][..., np.newaxis].astype(np.float64)
    _check(core, core.read_network(model), x, x @ matrix.reshape(COLUMNS, TERMS).T)


@pytest.mark.parametrize("form", ["columns", "rows, transposed", "one scale"])
def test_dequantised_matrices(core, form) -> None:
    rng = np.random.default_rng(5)
    turned = form == "rows, transposed"
    shape = (COLUMNS, TERMS) if turned else (TERMS, COLUMNS)
    stored = {"w": rng.integers(-128, 128, shape).astype(np.int8)}
    stored["s"] = rng.uniform(0.1, 1, () if form == "one scale" else COLUMNS).astype(np.float32)
    stored["z"] = np.full(stored["s"].shape, -3, np.int8)
    nodes = [helper.make_node("DequantizeLinear", [*stored], ["d"], axis=0 if turned else 1)]
    if turned:
        nodes.append(helper.make_node("Transpose", ["d"], ["t"], perm=[1, 0]))
    nodes.append(helper.make_node("MatMul", ["x", "t" if turned else "d"], ["y"]))
    model = _onnx(nodes, stored)
    x = rng.standard_normal((ROWS, TERMS)).astype(np.float32)
    whole = (stored["w"].T if turned else stored["w"]) + 3.0
    _check(core, core.read_network(model), x, x @ (whole * stored["s"].astype(np.float64)))


@pytest.mark.parametrize("blocked", [False, True])
def test_decompression_written_out(core, blocked) -> None:
    """As IR files have it: (Convert(w) - Convert(z)) * s, in blocks with an axis of their own."""
    rng = np.random.default_rng(6)
    sizes = (COLUMNS, BLOCKS, BLOCK) if blocked else (COLUMNS, TERMS)
    scales = (*sizes[:-1], 1)
    q = rng.integers(0, 256, sizes).astype(np.uint8)
    z = rng.integers(0, 256, scales).astype(np.uint8)
    s = rng.uniform(0.1, 1, scales).astype(np.float32)
    x = Node("x", Parameter(ElementType.f32, Shape([ROWS, TERMS])))
    wide = [
        Node(f"{name}/wide", Convert(destination_type=ElementType.f32), [constant(name, a).output])
        for name, a in (("w", q), ("z", z))
    ]
    less = Node("less", Subtract(), [wide[0].output, wide[1].output])
    w = Node("scaled", Multiply(), [less.output, constant("s", s).output]).output
    if blocked:
        target = constant("shape", np.array([COLUMNS, TERMS], np.int64)).output
        w = Node("whole", Reshape(special_zero=False), [w, target]).output
    y = Node("y", MatMul(transpose_b=True), [x.output, w])
    network = Network("n", [x], [Node("y/result", Result(output_name="y"), [y.output])])
    given = rng.standard_normal((ROWS, TERMS)).astype(np.float32)
    matrix = ((q.astype(float) - z) * s).reshape(COLUMNS, TERMS)
    _check(core, network, given, given @ matrix.T)


@pytest.mark.parametrize(
    ("rows", "least", "lanes", "stays"),
    [
        (64, 1, 32, False),
        (4, 1, 32, True),
        (1, 1 << 20, 32, False),
        (64, 1, 1, True),
        (64, 1 << 20, 1, False),
    ],
)
def test_what_is_no_gain_becomes_a_matrix_of_floats(rows, least, lanes, stays) -> None:
    """Many rows, on GPUs, and few elements."""
    x = Node("x", Parameter(ElementType.f32, Shape([rows, TERMS])))
    q = constant("w", np.ones((COLUMNS, TERMS), np.uint8)).output
    wide = Node("wide", Convert(destination_type=ElementType.f32), [q]).output
    w = Node("scaled", Multiply(), [wide, constant("s", np.float32(0.5)).output]).output
    y = Node("y", MatMul(transpose_b=True), [x.output, w])
    network = Network("n", [x], [Node("y/result", Result(output_name="y"), [y.output])])
    compress_products(network, Target(scalar_lanes=lanes), least)
    assert any(isinstance(node.op, CompressedMatMul) for node in network.nodes()) is stays


def test_a_shorter_last_block_stays_a_matrix_of_floats(core) -> None:
    """Blocks of 128 terms of which there are 192: no two blocks of 96."""
    rng = np.random.default_rng(7)
    stored = {"w": rng.integers(-128, 128, (192, COLUMNS)).astype(np.int8)}
    stored["s"] = rng.uniform(0.1, 1, (2, COLUMNS)).astype(np.float32)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=0, block_size=128),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    network = core.read_network(_onnx(nodes, stored, terms=192))
    assert _compressed(network) == 0


UNITS_IN_C = """
#undef FMA_HALVES
#undef AS_HALVES
#undef FROM_HALVES
#undef LARGEST_OF_WARP
#undef READ
static inline float half_of(uint pair, int number) {
    ushort halves[2] = {pair & 0xFFFF, pair >> 16};
    return vload_half(number, (const half*)halves);
}
static inline uint halves_of(float low, float high) {
    ushort halves[2];
    vstore_half_rte(low, 0, (half*)halves);
    vstore_half_rte(high, 1, (half*)halves);
    return halves[0] | (uint)halves[1] << 16;
}
static inline uint fma_halves(uint x, uint by, uint shift) {
    return halves_of(half_of(x, 0) * half_of(by, 0) + half_of(shift, 0),
                     half_of(x, 1) * half_of(by, 1) + half_of(shift, 1));
}
#define FMA_HALVES(result, x, factor, shift) result = fma_halves(x, factor, shift)
#define AS_HALVES(result, low, high) result = halves_of(low, high)
#define FROM_HALVES(low, high, x) low = half_of(x, 0), high = half_of(x, 1)
#define READ(to, from) to = vload4(0, (__global const uint*)(from))
#define LARGEST_OF_WARP(result, x) \
    { \
        exchange[thread] = x; \
        barrier(CLK_LOCAL_MEM_FENCE); \
        for (int w = 0; w < 32; w++) result = max(result, exchange[warp * 32 + w]); \
        barrier(CLK_LOCAL_MEM_FENCE); \
    }
"""


COPIES_IN_C = """
#undef SET_BARRIER
#undef FENCE_BARRIERS
#undef EXPECT
#undef COPY
#undef AWAIT
#define SET_BARRIER(stage)
#define FENCE_BARRIERS()
#define EXPECT(stage, bytes)
#define COPY(to, from, bytes, stage) \\
    for (int b = 0; b < bytes; b++) (to)[b] = ((__global const uchar*)(from))[b];
#define AWAIT(stage, phase) barrier(CLK_LOCAL_MEM_FENCE);
"""
BYTES_IN_C = """
#undef FROM_LANE
#undef BYTES_OF
#undef ADD_BYTES
#undef BARRIER_OF_ANY
static inline uint bytes_of(uint a, uint b, uint which) {
    const ulong both = a | (ulong)b << 32;
    uint result = 0;
    for (int i = 0; i < 4; i++)
        result |= (uint)(both >> 8 * (which >> 4 * i & 7) & 255) << 8 * i;
    return result;
}
#define BYTES_OF(to, a, b, which) to = bytes_of(a, b, which)
#define ADD_BYTES(sum, bytes) \
    for (int i = 0; i < 4; i++) sum += (char)((bytes) >> 8 * i);
#define BARRIER_OF_ANY(result, found) \
    { \
        exchange[thread] = found; \
        barrier(CLK_LOCAL_MEM_FENCE); \
        result = 0; \
        for (int i = 0; i < THREADS; i++) result |= exchange[i]; \
        barrier(CLK_LOCAL_MEM_FENCE); \
    }
#define FROM_LANE(to, from, bit) \
    { \
        exchange[thread] = from; \
        barrier(CLK_LOCAL_MEM_FENCE); \
        to = exchange[thread ^ (bit)]; \
        barrier(CLK_LOCAL_MEM_FENCE); \
    }
"""
MMA, FED = MatmulCompressedMma, MatmulCompressedFed


@pytest.mark.parametrize(
    ("kernel", "bits", "rows", "columns", "terms", "block", "mode"),
    [
        (MMA, 4, 1, 35, 640, 128, 4),
        pytest.param(MMA, 4, 3, 19, 384, 384, 4, marks=pytest.mark.full),
        pytest.param(MMA, 8, 1, 21, 960, 64, 0, marks=pytest.mark.full),
        (FED, 4, 1, 83, 2080, 32, 5),
        pytest.param(FED, 4, 1, 16, 512, 32, 5, marks=pytest.mark.full),  # one stage, and one step
        pytest.param(FED, 4, 3, 19, 1280, 640, 1, marks=pytest.mark.full),
        pytest.param(FED, 8, 2, 37, 640, 32, 3, marks=pytest.mark.full),
        pytest.param(FED, 8, 1, 50, 1088, 64, 5, marks=pytest.mark.full),
    ],
)
def test_matrix_units_multiply_numbers_as_they_are_stored(
    core, opencl, monkeypatch, kernel, bits, rows, columns, terms, block, mode
) -> None:
    """Rows of very different sizes, one of them infinite: f32's precision, though of less bits."""
    module = importlib.import_module("polydevice_gpu.compiler.compiler")
    target = dataclasses.replace(target_of(opencl), matrix_unit=True, warp_group_unit=True)
    target = dataclasses.replace(target, compute_units=1)
    launches = kernel.launches
    monkeypatch.setattr(module, "target_of", lambda _: target)
    instructions = BYTES_IN_C + COPIES_IN_C if kernel is FED else UNITS_IN_C
    monkeypatch.setattr(
        kernel,
        "launches",
        lambda *given: [
            dataclasses.replace(made, text=made.text.replace(warp_groups.MARK, ""))
            for made in (
                in_c(launch, instructions, of_bytes=kernel is FED) for launch in launches(*given)
            )
        ],
    )
    product = "polydevice_gpu.kernels.product.matmul_compressed"
    monkeypatch.setattr(f"{product}._ALL_LOCAL_BYTES", 96 << 10)
    monkeypatch.setattr(kernel, "default_mode", lambda *_: mode)
    only(monkeypatch, CompressedMatMul, kernel())
    random = np.random.default_rng(terms + bits)
    q = random.integers(0, 1 << bits, (columns, terms)).astype("u1")
    packed = q if bits == 8 else q[:, ::2] | q[:, 1::2] << 4
    zeros = random.integers(0, 1 << bits, (columns, terms // block)).astype("u1")
    scales = random.uniform(0.001, 1, zeros.shape).astype("f4")
    s = graphs.Sketch()
    constants = [s.const(*each) for each in (("w", packed), ("s", scales), ("z", zeros))]
    network = s.network(y=s.add("p", CompressedMatMul(bits), s.input("x", rows, terms), *constants))
    executable = graphs.loaded(network, opencl, graphs.SparingBuilder(opencl), core)
    assert kernel.name in executable.explain()
    blocks = (q.reshape(columns, -1, block).astype("f8") - zeros[..., None]) * scales[..., None]
    matrix = blocks.reshape(columns, terms).T
    for size in (1.0, 1e30, 1e-30):
        x = (random.standard_normal((rows, terms)) * size).astype("f4")
        x[:, ::7] *= np.float32(1e-4)
        (found,) = executable.infer({"x": x}).values()
        least = 3e-7 * np.abs(x).astype("f8") @ np.abs(matrix)
        assert (np.abs(found - x.astype("f8") @ matrix) <= least).all()
    x[-1, 3] = np.inf
    (found,) = executable.infer({"x": x}).values()
    right = np.where(matrix[3] > 0, np.inf, -np.inf)
    np.testing.assert_array_equal(found[-1][matrix[3] != 0], right[matrix[3] != 0])
    assert np.isfinite(found[:-1]).all()
