"""The oneDNN binding against NumPy formulas and ONNX's reference evaluator."""

from __future__ import annotations

import ctypes
import errno
import os
import site
import subprocess
import sys
import textwrap

import ml_dtypes
import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from polydevice_cpu.onednn import openmp, primitives
from polydevice_cpu.onednn.attributes import Attributes, Binary, Eltwise, Sum
from polydevice_cpu.onednn.constants import Algorithm, Arg, DataType, Query
from polydevice_cpu.onednn.descriptor import Descriptor, row_major
from polydevice_cpu.onednn.engine import MemoryObject, address_of, aligned
from polydevice_cpu.onednn.library import Library, candidates, library
from polydevice_cpu.onednn.primitive import run_once
from polydevice_cpu.processor import has_bf16

pytestmark = pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine")

needs_bf16 = pytest.mark.skipif(not has_bf16(), reason="no bfloat16 on this processor")


def of(array):
    """A memory object over a dense array."""
    data_type = {"float32": DataType.F32, "int32": DataType.S32}[str(array.dtype)]
    return MemoryObject(Descriptor.dense(array.shape, data_type), array.ctypes.data)


def to_layout(array, descriptor):
    """(buffer, memory) holding a dense array in another layout."""
    buffer = aligned(max(descriptor.size_bytes, 64))
    memory = MemoryObject(descriptor, buffer.ctypes.data)
    source = of(array)
    move = primitives.reorder(source.descriptor, descriptor, Attributes())
    run_once(move, {Arg.SRC: source, Arg.DST: memory})
    return buffer, memory


def from_layout(memory):
    """The dense f32 array of a memory object in any layout and type."""
    out = np.empty(memory.descriptor.shape, np.float32)
    move = primitives.reorder(memory.descriptor, of(out).descriptor, Attributes())
    run_once(move, {Arg.SRC: memory, Arg.DST: of(out)})
    return out


def test_onednn_keeps_no_code_of_its_own():
    """With its cache, 265 random transformers in a process bring a wrong answer, in minutes."""
    capacity = ctypes.c_int(-1)
    assert library()._c.dnnl_get_primitive_cache_capacity(ctypes.byref(capacity)) == 0
    assert capacity.value == 0


def onnx_run(op_type, inputs, **attributes):
    names = [f"x{k}" for k in range(len(inputs))]
    node = helper.make_node(op_type, names, ["y"], **attributes)
    infos = [
        helper.make_tensor_value_info(n, 1, x.shape) for n, x in zip(names, inputs, strict=True)
    ]
    out = helper.make_tensor_value_info("y", 1, None)
    model = helper.make_model(
        helper.make_graph([node], "g", infos, [out]), opset_imports=[helper.make_opsetid("", 17)]
    )
    return ReferenceEvaluator(model).run(None, dict(zip(names, inputs, strict=True)))[0]


CONVOLUTIONS = [
    # channels in, out, groups, kernel, stride, dilation, pads, sizes
    (3, 8, 1, (3,), (1,), (1,), (1, 1), (9,)),
    (16, 24, 1, (3, 3), (2, 2), (1, 1), (1, 0, 1, 2), (13, 11)),
    (12, 12, 12, (5, 3), (1, 1), (1, 1), (2, 1, 2, 1), (7, 9)),
    (12, 8, 4, (1, 1), (1, 1), (1, 1), (0, 0, 0, 0), (5, 6)),
    (5, 7, 1, (3, 3), (1, 1), (2, 3), (2, 3, 2, 3), (10, 9)),
    (4, 6, 1, (2, 3, 2), (1, 2, 1), (1, 1, 1), (0, 1, 0, 1, 1, 1), (5, 6, 4)),
]


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
@pytest.mark.parametrize(
    "data_type",
    [DataType.F32, pytest.param(DataType.BF16, marks=needs_bf16)],
    ids=lambda t: t.name,
)
def test_convolution(case, data_type):
    inputs, outputs, groups, kernel, strides, dilations, pads, sizes = case
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, inputs, *sizes), dtype=np.float32)
    w = rng.standard_normal((outputs, inputs // groups, *kernel), dtype=np.float32)
    b = rng.standard_normal(outputs, dtype=np.float32)
    expected = onnx_run(
        "Conv", [x, w, b], group=groups, strides=strides, dilations=dilations, pads=pads
    )
    if groups > 1:
        w = w.reshape(groups, outputs // groups, *w.shape[1:])
    rank = len(sizes)
    primitive = primitives.convolution(
        Descriptor.any(x.shape, data_type),
        Descriptor.any(w.shape, data_type),
        Descriptor.dense(b.shape),
        Descriptor.any(expected.shape, data_type),
        strides,
        dilations,
        pads[:rank],
        pads[rank:],
        Attributes(),
    )
    assert primitive is not None
    keep, src = to_layout(x, primitive.src)
    keep2, weights = to_layout(w, primitive.weights)
    buffer = aligned(primitive.dst.size_bytes)
    dst = MemoryObject(primitive.dst, buffer.ctypes.data)
    run_once(primitive, {Arg.SRC: src, Arg.WEIGHTS: weights, Arg.BIAS: of(b), Arg.DST: dst})
    tolerance = 1e-4 if data_type is DataType.F32 else 0.02 * float(np.abs(expected).max())
    np.testing.assert_allclose(from_layout(dst), expected, atol=tolerance)
    del keep, keep2


def test_post_operations_in_order():
    rng = np.random.default_rng(2)
    x = rng.standard_normal((4, 6), dtype=np.float32)
    w = rng.standard_normal((6, 5), dtype=np.float32)
    factor = rng.standard_normal((1, 5), dtype=np.float32)
    y = rng.standard_normal((4, 5), dtype=np.float32)
    expected = np.maximum((x @ w + y) * factor, 0) * 2 + 1
    primitive = primitives.matmul(
        of(x).descriptor,
        of(w).descriptor,
        None,
        of(y).descriptor,
        Attributes(
            [
                Sum(),
                Binary(Algorithm.BINARY_MUL, of(factor).descriptor),
                Eltwise(Algorithm.RELU),
                Eltwise(Algorithm.LINEAR, 2.0, 1.0),
            ]
        ),
    )
    assert primitive is not None
    # Post-operation k's operand is argument ATTR_POST_OP * (k + 1) | SRC_1.
    operand = Arg.ATTR_POST_OP * 2 | Arg.SRC_1
    run_once(primitive, {Arg.SRC: of(x), Arg.WEIGHTS: of(w), Arg.DST: of(y), operand: of(factor)})
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


def test_a_primitive_that_is_being_destroyed_is_not_handed_out(monkeypatch):
    """oneDNN destroys it without Python's lock, so that other threads ask for the same then."""

    def relu():
        made = primitives.eltwise(Algorithm.RELU, sizes, sizes, 0.0, 0.0, Attributes())
        assert made is not None
        return made

    def destroy(library, name, handle):
        if name == "primitive_destroy" and not again:
            again.append(relu())
        real(library, name, handle)

    x = np.random.default_rng(4).standard_normal((3, 7), dtype=np.float32)
    y, again, sizes, real = np.empty_like(x), [], of(x).descriptor, Library.destroy
    made = relu().compile()
    assert relu() is made
    number = made.number
    with monkeypatch.context() as patched:
        patched.setattr(Library, "destroy", destroy)
        del made
    (other,) = again
    assert other.number != number
    run_once(other, {Arg.SRC: of(x), Arg.DST: of(y)})
    np.testing.assert_array_equal(y, np.maximum(x, 0))


def test_strided_descriptor_reads_a_transposed_matrix():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    transposed = Descriptor.strided((3, 2), (1, 3))
    assert transposed.strides == (1, 3)
    assert not transposed.is_dense
    assert Descriptor.dense((3, 2)).is_dense
    np.testing.assert_array_equal(from_layout(MemoryObject(transposed, x.ctypes.data)), x.T)


def test_row_major_counts_empty_sizes_as_one():
    assert row_major((2, 0, 3)) == (3, 3, 1)


def test_no_implementation_is_none_not_an_exception():
    half = Descriptor.dense((4, 4), DataType.S8)
    assert primitives.matmul(half, half, None, half, Attributes([Sum()])) is not None
    wrong = Descriptor.dense((5, 4))
    assert primitives.matmul(wrong, wrong, None, wrong, Attributes()) is None


def test_threads_are_restored():
    get, _ = openmp.functions()
    before = get()
    with openmp.threads(before + 3):
        assert get() == before + 3
    assert get() == before


def _python(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=240,  # of two seconds; many programs share a busy machine
        check=False,
    )


PARALLEL = """
    import os
    import numpy as np
    from polydevice_cpu.onednn import openmp, primitives
    from polydevice_cpu.onednn.attributes import Attributes
    from polydevice_cpu.onednn.constants import Arg
    from polydevice_cpu.onednn.descriptor import Descriptor
    from polydevice_cpu.onednn.engine import MemoryObject
    from polydevice_cpu.onednn.primitive import run_once
    def product():
        x = np.ones((256, 256), np.float32); y = np.empty_like(x)
        d = Descriptor.dense(x.shape)
        with openmp.threads(3):
            p = primitives.matmul(d, d, None, d, Attributes())
            m = MemoryObject(d, x.ctypes.data)
            run_once(p, {Arg.SRC: m, Arg.WEIGHTS: m, Arg.DST: MemoryObject(d, y.ctypes.data)})
        return float(y.min()), float(y.max())
"""


def test_a_forked_child_computes_too():
    # libgomp by itself hangs here: the child waits for workers that only the parent has.
    result = _python(
        textwrap.dedent(PARALLEL)
        + textwrap.dedent("""
        assert product() == (256.0, 256.0)
        pid = os.fork()
        if pid == 0:
            os._exit(0 if product() == (256.0, 256.0) else 1)
        assert product() == (256.0, 256.0)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        """)
    )
    assert result.stdout.strip() == "0", result.stderr


def test_a_home_that_one_may_not_look_into_is_passed_over(monkeypatch):
    """That of another user, which a daemon inherits in HOME."""
    real = os.stat

    def refuse(path, *arguments, **options):
        if str(path).startswith("/hidden"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, *arguments, **options)

    monkeypatch.delenv("DNNL_LIB", raising=False)
    expected = candidates()
    monkeypatch.setattr(os, "stat", refuse)
    monkeypatch.setattr(site, "getuserbase", lambda: "/hidden/.local")
    assert candidates() == expected


def test_missing_library_says_what_to_do_once(tmp_path):
    result = _python(
        """
        import logging
        logging.basicConfig(level=logging.WARNING)
        from polydevice_cpu.onednn.library import absence, library
        assert library() is None and library() is None
        print(absence())
        """,
        DNNL_LIB=str(tmp_path / "libdnnl.so.3"),
    )
    assert result.returncode == 0, result.stderr
    assert "onednn-cpu-gomp" in result.stdout
    assert "libdnnl.so.3" in result.stdout
    assert result.stderr.count("onednn-cpu-gomp") == 1


@pytest.mark.parametrize("shape", [(3,), (1, 1), (2, 1, 1), (1, 3, 1, 5), (2, 3, 4, 5, 6)])
def test_a_dense_layout_is_named_as_it_is_read(shape):
    dense = Descriptor.dense(shape)
    assert dense.layout == dense._read_layout() == "abcdefghijkl"[: len(shape)]


def test_layouts_are_named_as_onednn_does():
    assert Descriptor.channels_last((2, 3, 4, 5)).layout == "acdb"
    assert Descriptor.strided((2, 3), (5, 1)).layout == "ab+"


@pytest.mark.parametrize("seed", range(2))
def test_layouts_that_were_not_read_are_those_that_onednn_holds(seed):
    rng = np.random.default_rng(seed)
    places = [(Query.SRC, 0), (Query.WEIGHTS, 0), (Query.WEIGHTS, 1), (Query.DST, 0)]
    compared = 0
    for _ in range(40):
        batch, height, width = (int(n) for n in rng.integers(1, 20, 3))
        inputs, outputs = ((1, 3, 16, 48)[int(n)] for n in rng.integers(0, 4, 2))
        shapes = (batch, inputs, height, width), (batch, outputs, height, width)
        layout = [Descriptor.any, Descriptor.dense, Descriptor.channels_last][int(rng.integers(3))]
        made = primitives.convolution(
            layout(shapes[0]),
            Descriptor.any((outputs, inputs, 3, 3)),
            Descriptor.dense((outputs,)),
            layout(shapes[1]),
            *((1, 1), (1, 1), (1, 1), (1, 1)),
            Attributes([Eltwise(Algorithm.RELU)]),
        )
        assert made is not None
        for query, index in places:
            held = made._address(query, index)
            read = Descriptor.clone(held)
            told = made.descriptor(query, index)
            assert told == read
            assert (told.shape, told.strides) == (read.shape, read.strides)
            compared += 1
        if made.scratchpad_bytes:
            assert made.scratchpad == Descriptor.clone(made._address(Query.SCRATCHPAD, 0))
    assert compared == 160


def test_addresses_are_those_that_numpy_tells():
    whole = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    for array in (
        *(whole, whole[1:, ::2, 3:], whole.T, whole[::-1], whole[3:], np.array(7), np.empty(0)),
        *(np.frombuffer(b"read only", np.uint8), np.array(["text", None], object)),
        *(np.broadcast_to(np.float64(1), (2, 2)), np.zeros(3, ml_dtypes.bfloat16)),
    ):
        assert address_of(array) == array.__array_interface__["data"][0]
    assert address_of(np.float32(2)), "NumPy's numbers have none of their own, but are asked"
