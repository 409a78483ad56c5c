"""Results that tails hand out as they are, which whoever has them may change."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice.dtype import ElementType
from polydevice.ops.activation import Relu, Sigmoid
from polydevice.ops.arithmetic import (
    Add,
    Divide,
    FloorMod,
    Maximum,
    Minimum,
    Mod,
    Multiply,
    Power,
    SquaredDifference,
    Subtract,
)
from polydevice.ops.bitwise import BitwiseAnd, BitwiseLeftShift
from polydevice.ops.broadcast import Tile
from polydevice.ops.comparison import Equal, Greater, Less, NotEqual
from polydevice.ops.concat import Concat
from polydevice.ops.control_flow import If
from polydevice.ops.convert import Convert
from polydevice.ops.gather import Gather, GatherElements, GatherND
from polydevice.ops.generate import OneHot, Range
from polydevice.ops.logical import LogicalAnd, LogicalNot
from polydevice.ops.nms import NonMaxSuppression
from polydevice.ops.pad import Pad
from polydevice.ops.reduce import (
    ReduceL1,
    ReduceL2,
    ReduceLogicalAnd,
    ReduceLogicalOr,
    ReduceMax,
    ReduceMean,
    ReduceMin,
    ReduceProd,
    ReduceSum,
)
from polydevice.ops.reshape import ShapeOf
from polydevice.ops.scatter import ScatterElementsUpdate, ScatterNDUpdate
from polydevice.ops.search import NonZero, Unique
from polydevice.ops.select import Select
from polydevice.ops.signal import CumSum
from polydevice.ops.softmax import LogSoftmax, SoftMax
from polydevice.ops.strings import (
    LabelEncoder,
    RegexFullMatch,
    StringConcat,
    StringNormalizer,
    StringSplit,
    TfIdfMode,
    TfIdfVectorizer,
)
from polydevice.ops.topk import TopK, TopKMode, TopKSort
from polydevice_cpu.implement import run
from polydevice_cpu.plan.tails.tail import MAKING
from tests.cpu.loading import load


def making(rng, shape):
    """Operations of which tails hand out what is computed, each with what it reads."""
    x, index, first = rng.normal(size=shape).astype(np.float32), np.int64([[0]]), np.int64([0])
    words = np.array(["b", "", "a b"], object)
    yield from ((each(), [x]) for each in (Relu, Sigmoid))
    binary = Add, Divide, Equal, FloorMod, Greater, Less, Mod, Multiply, NotEqual, Subtract
    binary += Maximum, Minimum, Power, SquaredDifference
    yield from ((each(), [x, x]) for each in binary)
    yield from ((each(), [np.abs(index), index]) for each in (BitwiseAnd, BitwiseLeftShift))
    yield from [(LogicalAnd(), [x > 0, x > 0]), (LogicalNot(), [x > 0])]
    yield from [(SoftMax(axis=0), [x]), (Concat(axis=0), [x]), (NonZero(), [x > 0])]
    yield LogSoftmax(axis=0), [x]
    for kind in (np.float32, np.float64, np.float16, np.int64, np.uint8):
        given = x.astype(kind), np.array(0)
        yield from (
            (CumSum(exclusive=e, reverse=r), given) for e in (True, False) for r in (e, False)
        )
        yield (
            Range(output_type=ElementType.of(np.dtype(kind))),
            [np.array(n, kind) for n in (0, 1, 1)],
        )
    for depth in (1, 2, 80):
        values = np.array(depth), np.float32(1).reshape(()), np.float32(0).reshape(())
        yield from ((OneHot(axis=axis), [first[: shape[0]], *values]) for axis in (0, 1))
    yield from ((Tile(), [x, np.int64(times)]) for times in ([1, 1], [1], [1, 1, 1], [2, 1]))
    for ends in (np.int64([0, 0]), np.int64([0, 1])):
        yield from ((Pad(), [x, first.repeat(2), ends, *value]) for value in ([], [np.array(7)]))
    yield Pad(), [words, first, first]
    reductions = ReduceL1, ReduceL2, ReduceMax, ReduceMean, ReduceMin, ReduceProd
    for axes in (first, np.int64([0, 1]), np.int64([])):
        for kind in (np.float32, np.float64, np.float16, np.int64, np.int32):
            yield from ((each(), [x.astype(kind), axes]) for each in reductions)
        yield from ((each(), [x > 0, axes]) for each in (ReduceLogicalAnd, ReduceLogicalOr))
    yield Convert(ElementType.f64), [x]
    yield Convert(ElementType.string), [x.astype(np.int64)]
    yield TopK(axis=1, mode=TopKMode.MAX, sort=TopKSort.VALUE), [x, np.array(1)]
    yield from [(ShapeOf(), [x]), (Select(), [x > 0, x, x]), (Unique(), [x]), (Unique(), [words])]
    for axes in (first, np.int64([0, 1]), np.int64([])):
        yield from ((ReduceSum(keep_dims=kept), [x, axes]) for kept in (True, False))
        yield ReduceSum(), [x.astype(np.int32), axes]
    yield from [(StringConcat(), [words, words]), (StringSplit(), [words])]
    yield from [(StringNormalizer(), [words]), (RegexFullMatch(pattern="a.*"), [words])]
    labels = {"keys": ("a b",), "values": (7,), "default": -1, "destination_type": ElementType.i64}
    yield LabelEncoder(**labels), [words]
    of_words = {"pool": ("a", "b"), "starts": (0,), "columns": (0, 1), "shortest": 1, "longest": 1}
    yield TfIdfVectorizer(**of_words, longest_skip=0, mode=TfIdfMode.TF), [words]
    if shape[0]:
        yield from [(GatherND(), [x, index[0]]), (Gather(), [x, index[0], np.array(0)])]
        yield GatherElements(axis=0), [x, index]
        yield ScatterElementsUpdate(), [x, index, x[:1, :1], np.array(0)]
        yield ScatterNDUpdate(), [x, index, x[:1]]


@pytest.mark.parametrize("shape", [(1, 1), (4, 3), (0, 3)])
def test_results_of_operations_are_arrays_of_their_own(rng, shape):
    """Also where sizes are 1, or 0."""
    seen = {If, NonMaxSuppression}
    for op, given_ in making(rng, shape):
        for array in run(op, given_):
            assert not any(np.may_share_memory(array, each) for each in given_), op
        seen.add(type(op))
    assert not shape[0] or all(any(issubclass(each, kind) for each in seen) for kind in MAKING)


def test_texts_that_are_changed_afterwards(core, rng):
    """Whoever changes outputs changes no other one, no input, and nothing that comes later."""
    node = helper.make_node
    nodes = [
        node("StringConcat", ["x", "end"], ["joined"]),
        node("StringSplit", ["joined"], ["parts", "counts"], delimiter="."),
        node("Unique", ["joined"], ["values", "first", "inverse", "many"]),
        node("Reshape", ["joined", "flat"], ["row"]),
        node("Gather", ["values", "inverse"], ["again"]),
        node("Identity", ["parts"], ["same"]),
        node("Gather", ["joined", "inverse0"], ["taken"]),
        node("Reshape", ["taken", "flat"], ["line"]),
        node("Unsqueeze", ["line", "zero"], ["lines"]),
        node("Cast", ["first"], ["unlike"], to=TensorProto.INT32),
        node("Cast", ["many"], ["alike"], to=TensorProto.INT64),
    ]
    texts = ["joined", "parts", "values", "row", "again", "same", "lines"]
    numbers = ["counts", "first", "inverse", "many", "alike"]
    outputs = [helper.make_tensor_value_info(name, TensorProto.STRING, None) for name in texts]
    outputs += [helper.make_tensor_value_info(name, TensorProto.INT64, None) for name in numbers]
    outputs.append(helper.make_tensor_value_info("unlike", TensorProto.INT32, None))
    numbers.append("unlike")
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.STRING, [3, "n"])],
        outputs,
        [
            numpy_helper.from_array(np.array([".png"], object), "end"),
            numpy_helper.from_array(np.int64([-1]), "flat"),
            numpy_helper.from_array(np.int64([0]), "zero"),
            numpy_helper.from_array(np.int64([[2, 0]]), "inverse0"),
        ],
    )
    imports = [helper.make_opsetid("", 20)]
    content = helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    request = load(core, content).create_infer_request()
    kept = []
    for turn in range(5):
        x = rng.choice(np.array(["a", "b.c", "", "long one"], object), (3, 5 if turn else 1))
        before, wanted = x.copy(), session.run(None, {"x": x})
        found = request.infer({"x": x})
        for name, right in zip(texts + numbers, wanted, strict=True):
            if name == "lines":  # of which ONNX Runtime 1.32 loses texts
                right = wanted[0][[2, 0]].reshape(1, -1)
            np.testing.assert_array_equal(found[name], right)
        for array, right in kept:
            np.testing.assert_array_equal(array, right)
        for name, array in found.items():
            rest = {other: each.copy() for other, each in found.items() if other != name}
            array[...] = "changed" if name in texts else -7
            for other, right in rest.items():
                np.testing.assert_array_equal(found[other], right)
        np.testing.assert_array_equal(x, before)
        kept += [(array, array.copy()) for array in found.values()]
