"""Plans with formulas, and what is filled in for other sizes."""

from __future__ import annotations

import threading

import numpy as np
import onnx
import pytest

from polydevice.ops.activation import Relu
from polydevice.symbolic_size import UntraceableError, mentions_sizes
from polydevice.symbolic_trace import tracing
from polydevice_cpu.algorithms.by_machine.code import has_avx512
from polydevice_cpu.lowering.concat import _joining
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.library import library
from polydevice_cpu.onednn.primitive import Primitive
from polydevice_cpu.plan import settling
from polydevice_cpu.plan.building.looks import reshaped_strides
from polydevice_cpu.plan.filling.captured import serves_all_sizes
from polydevice_cpu.plan.filling.plan_sizes import PlanSizes
from polydevice_cpu.plan.plan import PlanParts
from polydevice_cpu.plan.step import ArrayStep, PrimitiveStep
from polydevice_cpu.processor import has_int8
from polydevice_cpu.proof.ledger import Ledger
from tests.absent import wants
from tests.cpu import models
from tests.cpu.loading import asked_from_now, image, load
from tests.cpu.proved import unproved

pytestmark = pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine")


def attention() -> bytes:
    """Two heads over a sequence, of which the last element is taken."""
    nodes = [
        ("Shape", ["x"], ["sizes"], {}),
        ("Gather", ["sizes", "zero"], ["batch"], {"axis": 0}),
        ("Gather", ["sizes", "one"], ["length"], {"axis": 0}),
        ("Concat", ["batch", "length", "heads"], ["split"], {"axis": 0}),
        ("Concat", ["batch", "length", "width"], ["whole"], {"axis": 0}),
    ]
    for name, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes += [
            ("MatMul", ["x", f"w{name}"], [f"{name}0"], {}),
            ("Add", [f"{name}0", "bias"], [f"{name}1"], {}),
            ("Reshape", [f"{name}1", "split"], [f"{name}2"], {}),
            ("Transpose", [f"{name}2"], [name], {"perm": order}),
        ]
    nodes += [
        ("MatMul", ["q", "k"], ["scores"], {}),
        ("Softmax", ["scores"], ["p"], {"axis": -1}),
        ("MatMul", ["p", "v"], ["mixed"], {}),
        ("Transpose", ["mixed"], ["back"], {"perm": [0, 2, 1, 3]}),
        ("Reshape", ["back", "whole"], ["joined"], {}),
        ("Add", ["joined", "x"], ["sum"], {}),
        ("LayerNormalization", ["sum", "scale", "bias"], ["y"], {"axis": -1}),
        ("Gather", ["y", "last"], ["z"], {"axis": 1}),
    ]
    weights = {f"w{name}": image(n, 8, 8) - np.float32(0.5) for n, name in enumerate("qkv")}
    weights |= {"bias": image(5, 8), "scale": image(6, 8), "last": np.array(-1)}
    weights |= {"zero": np.array([0]), "one": np.array([1]), "heads": np.array([2, 4])}
    weights["width"] = np.array([8])
    return models.build(nodes, {"x": ["n", "k", 8]}, ["y", "z"], weights)


def pictures() -> bytes:
    """Convolutions that are joined, resized and pooled, and a scale of what is left of them."""
    nodes = [
        ("Conv", ["x", "w0"], ["a"], {"pads": [1] * 4}),
        ("PRelu", ["a", "slope"], ["b"], {}),
        ("Conv", ["b", "w1"], ["c"], {"strides": [2, 2], "pads": [1] * 4, "group": 16}),
        ("HardSwish", ["c"], ["d"], {}),
        ("GlobalAveragePool", ["d"], ["g"], {}),
        ("Conv", ["g", "w2"], ["h"], {}),
        ("HardSigmoid", ["h"], ["i"], {}),
        ("Mul", ["d", "i"], ["j"], {}),
        ("Resize", ["j", "", "scales"], ["k"], _NEAREST),
        ("Conv", ["k", "w2"], ["l"], {}),
        ("Conv", ["k", "w2"], ["m"], {}),
        ("Add", ["l", "m"], ["n"], {}),
        ("MaxPool", ["n"], ["o"], {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("Concat", ["o", "j"], ["p"], {"axis": 1}),
        ("ConvTranspose", ["p", "w3"], ["q"], {"strides": [2, 2], "kernel_shape": [2, 2]}),
        ("Transpose", ["q"], ["r"], {"perm": [0, 2, 3, 1]}),
        ("Softmax", ["r"], ["y"], {"axis": -1}),
    ]
    weights = {
        "w0": image(0, 16, 3, 3, 3) - np.float32(0.5),
        "w1": image(1, 16, 1, 3, 3) - np.float32(0.5),
        "w2": image(2, 16, 16, 1, 1) - np.float32(0.5),
        "w3": image(3, 32, 4, 2, 2) - np.float32(0.5),
        "slope": image(4, 16, 1, 1),
        "scales": np.array([1, 1, 2, 2], np.float32),
    }
    return models.build(nodes, {"x": ["n", 3, "h", "v"]}, ["y"], weights)


_NEAREST = {
    "mode": "nearest",
    "coordinate_transformation_mode": "asymmetric",
    "nearest_mode": "floor",
}


def compare(request, model: bytes, x: np.ndarray) -> None:
    got = request.infer({"x": x})
    for ours, theirs in zip(got.values(), models.answer(model, {"x": x}), strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5 * np.abs(theirs).max())


def sequences() -> list[tuple[int, ...]]:
    sizes = [(2, 5), (2, 7), (1, 6), (3, 9), (1, 1), (2, 33), (4, 2), (1, 40), (5, 5), (1, 7)]
    return [(n, k, 8) for n, k in sizes]


def photographs() -> list[tuple[int, ...]]:
    sizes = [
        (1, 8, 8),
        (1, 8, 12),
        (1, 16, 20),
        (2, 8, 36),
        (1, 4, 4),
        (3, 12, 8),
        (1, 48, 40),
        (1, 12, 20),
    ]
    return [(n, 3, height, width) for n, height, width in sizes]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("make", "shapes"), [(attention, sequences), (pictures, photographs)])
def test_answers_of_plans_that_are_filled_in(core, make, shapes, threads):
    model = make()
    executable = load(core, model, CPU_THREADS_NUM=threads)
    request = executable.create_infer_request()
    for number, shape in enumerate(shapes()):
        compare(request, model, image(number, *shape) - np.float32(0.5))
        assert not list(unproved(executable.latest_plan()))
    assert executable.compiled.templates.filled >= 3


LONELY = {
    "PRelu": ({"slope": image(4, 3, 1, 1)}, {}),
    "LRN": ({}, {"size": 3}),
    "InstanceNormalization": ({"scale": image(4, 3), "bias": image(5, 3)}, {}),
    "LpNormalization": ({}, {"axis": 1}),
}


@pytest.mark.parametrize("kind", LONELY)
def test_layers_that_are_computed_alone(core, kind):
    """Of which the next layers ask how their results lie in memory."""
    weights, attributes = LONELY[kind]
    nodes = [(kind, ["x", *weights], ["a"], attributes), ("Softmax", ["a"], ["y"], {"axis": 1})]
    model = models.build(nodes, {"x": ["n", 3, "h", "v"]}, ["y"], weights)
    network = load(core, model)
    request = network.create_infer_request()
    for shape in photographs()[:5]:
        compare(request, model, image(sum(shape), *shape) - np.float32(0.5))
    assert network.compiled.templates.filled


def test_a_filled_plan_asks_onednn_once_for_layers_that_are_alike(core, monkeypatch):
    model = pictures()
    executable = load(core, model)
    request = executable.create_infer_request()
    for number in range(2):
        request.infer({"x": image(number, 1, 3, 16, 16 + 4 * number)})
    before = [step.type for step in executable.latest_plan().steps]
    asked = asked_from_now(monkeypatch)
    request.infer({"x": image(3, 1, 3, 16, 40)})
    plan = executable.latest_plan()
    primitives = [step.primitive for step in plan.steps if isinstance(step, PrimitiveStep)]
    assert [step.type for step in plan.steps] == before
    assert executable.compiled.templates.filled == 1
    # What adds in place settles its layouts first, and trials are made of parts.
    assert asked.count("convolution_forward_primitive_desc_create") <= len(primitives)


def test_few_elements_are_copied_by_numpy(core, monkeypatch):
    """As long as a shape is new: what the result is brought into its order of axes with."""
    monkeypatch.setattr(settling, "RUNS", 3)
    nodes = [
        ("Conv", ["x", "w"], ["a"], {"pads": [1] * 4}),
        ("Sigmoid", ["x"], ["s"], {}),
        ("Mul", ["a", "s"], ["y"], {}),
    ]
    model = models.build(nodes, {"x": ["n", 16, "h", "v"]}, ["y"], {"w": image(0, 16, 16, 3, 3)})
    executable = load(core, model)
    request = executable.create_infer_request()

    def copies():
        return [
            isinstance(step, ArrayStep)
            for step in executable.latest_plan().steps
            if step.type == "Reorder"
        ]

    for number, (n, *sizes) in enumerate([(1, 8, 9), (1, 9, 8), (1, 12, 13), (2, 5, 7)]):
        x = image(number, n, 16, *sizes)
        compare(request, model, x)
    assert any(copies())
    before = request.infer({"x": x})["y"].copy()
    for _ in range(settling.RUNS):
        request.infer({"x": x})
    for thread in threading.enumerate():
        if thread.name == "polydevice-cpu-settling":
            thread.join()
    np.testing.assert_array_equal(request.infer({"x": x})["y"], before)
    assert copies()
    assert not any(copies())
    compare(request, model, image(9, 1, 16, 150, 140))
    assert not all(copies())  # many elements


def test_memory_of_a_filled_plan_is_of_its_own_sizes(core):
    executable = load(core, attention())
    request = executable.create_infer_request()
    arenas = []
    for length in (5, 6, 7, 100, 9):
        request.infer({"x": image(0, 1, length, 8)})
        arenas.append(executable.latest_plan().arena_bytes)
    assert executable.compiled.templates.filled >= 2
    assert arenas[3] == max(arenas)
    assert arenas[4] < arenas[3]


def test_the_part_of_a_constant_table_that_a_size_selects(core):
    nodes = [
        ("Shape", ["x"], ["size"], {"start": 1, "end": 2}),
        ("Slice", ["table", "zero", "size", "one"], ["positions"], {}),
        ("Add", ["x", "positions"], ["y"], {}),
    ]
    weights = {"table": image(3, 1, 64, 8), "zero": np.array([0]), "one": np.array([1])}
    model = models.build(nodes, {"x": ["n", "s", 8]}, ["y"], weights)
    executable = load(core, model)
    for number, (n, size) in enumerate([(1, 20), (3, 7), (1, 9), (2, 30), (1, 64), (1, 1)]):
        compare(executable.requests[0], model, image(number, n, size, 8))
    assert executable.compiled.templates.filled >= 1


@wants("onnxruntime", "1.24", "refuses a scale of one number")
def test_a_scale_of_one_number_is_repeated_for_each_length(core):
    """What is made of a constant for a length is kept, but not for the lengths of other plans."""
    nodes = [("LayerNormalization", ["x", "scale", "shift"], ["y"], {"axis": -1})]
    weights = {"scale": np.array([2], np.float32), "shift": np.array([1], np.float32)}
    model = models.build(nodes, {"x": ["n", "k"]}, ["y"], weights)
    executable = load(core, model)
    for number, shape in enumerate([(2, 5), (3, 6), (2, 8), (3, 12), (2, 20), (3, 12), (4, 12)]):
        compare(executable.requests[0], model, image(number, *shape))
    assert executable.compiled.templates.filled


@wants("onnxruntime", "1.24", "has no convolution of such integers")
@pytest.mark.parametrize("stride", [1, 2])
def test_verdicts_are_about_numbers(core, monkeypatch, stride):
    """The class of a convolution of integers names its borders, which follow from the sizes."""
    verdict, asked = Ledger.verdict, []

    def noted(self, key):
        asked.append(key)
        return verdict(self, key)

    monkeypatch.setattr(Ledger, "verdict", noted)
    nodes = [
        ("QuantizeLinear", ["x", "step", "zero"], ["q"], {}),
        ("ConvInteger", ["q", "w", "zero"], ["i"], {"pads": [1] * 4, "strides": [stride] * 2}),
        ("Cast", ["i"], ["y"], {"to": onnx.TensorProto.FLOAT}),
    ]
    weights = {
        "step": np.array(0.01, np.float32),
        "zero": np.array(7, np.uint8),
        "w": (image(1, 16, 16, 3, 3) * 200 - 100).astype(np.int8),
    }
    model = models.build(nodes, {"x": ["n", 16, "h", "v"]}, ["y"], weights)
    executable = load(core, model)
    for number, size in enumerate([8, 9, 12, 13, 16, 15, 20, 21]):
        compare(executable.requests[0], model, image(number, 1, 16, size, size + 4))
    # One serves sizes of which strides leave something over, and of which they do not.
    assert executable.compiled.templates.filled >= 5
    # Elsewhere floats are multiplied, with nothing fused that is to be tried.
    assert not has_int8() or any(key.startswith("convolution") for key in asked)
    assert not any(map(mentions_sizes, asked))


@pytest.mark.parametrize("layer", ["LSTM", "GRU"])
def test_recurrent_layers_of_known_lengths(core, layer):
    """An item lasts for all steps of whatever length: ONNX leaves that out, and it is filled in."""
    gates = {"LSTM": 4, "GRU": 3}[layer]
    weights = {"w": image(1, 2, gates * 8, 6), "r": image(2, 2, gates * 8, 8)}
    given = {"hidden_size": 8, "direction": "bidirectional"}
    model = models.build(
        [(layer, ["x", "w", "r"], ["y"], given)], {"x": ["length", 1, 6]}, ["y"], weights
    )
    executable = load(core, model)
    for number, length in enumerate([5, 9, 12, 7, 30, 1, 18]):
        compare(executable.requests[0], model, image(number, length, 1, 6) - np.float32(0.5))
    assert executable.compiled.templates.filled >= 3 or not has_avx512()


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
def test_borders_of_filled_plans_follow_the_sizes(core, mode):
    model = models.build(
        [("Pad", ["x", "pads"], ["p"], {"mode": mode}), ("Relu", ["p"], ["y"], {})],
        {"x": ["n", "k"]},
        ["y"],
        {"pads": np.array([1, 0, 1, 2])},
    )
    executable = load(core, model)
    for number, shape in enumerate([(2, 3), (3, 3), (4, 4), (5, 7), (6, 4), (2, 9)]):
        compare(executable.requests[0], model, image(number, *shape) - np.float32(0.5))
    assert executable.compiled.templates.filled >= 2


def test_a_step_that_has_caught_sizes_is_for_them_alone():
    with tracing() as trace:
        size = trace.input(3)
        step = ArrayStep("a", "Pad", lambda _: lambda x: (x[:size],), [], [])
        with pytest.raises(UntraceableError, match="Pad 'a'"):
            PlanSizes().visit(PlanParts([step], [], list, {}, {}))


def test_numbers_computed_from_sizes_are_those_of_each_shape(core):
    nodes = [
        ("Shape", ["x"], ["s"], {}),
        ("Expand", ["x", "ones"], ["e"], {}),
        ("Cast", ["s"], ["f"], {"to": onnx.TensorProto.FLOAT}),
        ("Add", ["e", "f"], ["y"], {}),
    ]
    model = models.build(nodes, {"x": ["n", 2]}, ["y"], {"ones": np.array([1, 1])})
    request = load(core, model).create_infer_request()
    for number, rows in enumerate([2, 3, 4, 5, 9, 3]):
        compare(request, model, image(number, rows, 2))


def positions(step: int) -> bytes:
    """Numbers of places in a text, every one or every second, and which lie before which."""
    nodes = [
        ("Shape", ["x"], ["sizes"], {}),
        ("Gather", ["sizes", "one"], ["length"], {"axis": 0}),
        ("Range", ["zero", "length", "step"], ["places"], {}),
        ("Range", ["length", "zero", "back"], ["others"], {}),
        ("Cast", ["places"], ["numbers"], {"to": onnx.TensorProto.FLOAT}),
        ("Slice", ["x", "from", "to", "axis", "by"], ["part"], {}),
        ("Unsqueeze", ["numbers", "last"], ["column"], {}),
        ("Mul", ["part", "column"], ["y"], {}),
        ("Unsqueeze", ["others", "last"], ["rows"], {}),
        ("Less", ["rows", "places"], ["before"], {}),
        ("Cast", ["before"], ["z"], {"to": onnx.TensorProto.FLOAT}),
    ]
    scalars = {"zero": 0, "one": 1, "step": step, "back": -1}
    weights = {name: np.array(number) for name, number in scalars.items()}
    rows = {"from": 0, "to": 9999, "axis": 1, "by": step, "last": -1}
    weights |= {name: np.array([number]) for name, number in rows.items()}
    return models.build(nodes, {"x": ["n", "length", 8]}, ["y", "z"], weights)


@pytest.mark.parametrize("step", [1, 2, 3])
def test_ranges_up_to_a_size_serve_all_sizes(core, step):
    model = positions(step)
    executable = load(core, model)
    request = executable.create_infer_request()
    for number, shape in enumerate([(2, 5, 8), (1, 6, 8), (3, 7, 8), (2, 31, 8), (3, 40, 8)]):
        compare(request, model, image(number, *shape))
    assert executable.compiled.templates.filled
    compare(request, model, image(9, 2, 31, 8))


def nothing_before() -> bytes:
    """What lies before the first place is empty, and is joined with what is there."""
    weights = {name: np.array([number]) for name, number in (("from", 0), ("to", 0), ("axis", 1))}
    nodes = [
        ("Slice", ["x", "from", "to", "axis"], ["none"], {}),
        ("Relu", ["none"], ["nothing"], {}),
        ("Concat", ["nothing", "x"], ["y"], {"axis": 1}),
    ]
    return models.build(nodes, {"x": ["n", "length", 8]}, ["y"], weights)


def test_empty_values_of_other_sizes_serve_all_sizes(core):
    model = nothing_before()
    executable = load(core, model)
    request = executable.create_infer_request()
    for number, shape in enumerate([(2, 5, 8), (3, 6, 8), (4, 7, 8), (2, 31, 8), (3, 40, 8)]):
        compare(request, model, image(number, *shape))
    assert executable.compiled.templates.filled >= 2


def test_closed_networks_keep_no_templates(core):
    executable = load(core, attention())
    request = executable.create_infer_request()
    for length in range(2, 7):
        request.infer({"x": image(0, 1, length, 8)})
    executable.compiled.release()
    assert not executable.compiled.templates.may_learn(((1, 9, 8),))


@pytest.mark.parametrize(
    ("shape", "order", "wanted"),
    [
        ((4, 3, 2), (0, 1, 2), (12, 2)),
        ((4, 3, 2), (0, 2, 1), (4, 6)),
        ((4, 3, 2), (1, 0, 2), (3, 8)),
        ((4, 3, 2), (1, 0, 2), (3, 2, 2, 2)),
        ((4, 6, 2), (2, 0, 1), (2, 4, 3, 2)),
        ((1, 6, 2), (2, 0, 1), (1, 2, 1, 6)),
        ((6, 4), (1, 0), (2, 2, 6, 1)),
        ((6, 4), (1, 0), (8, 3)),
        ((2, 3, 5, 7), (0, 2, 3, 1), (2, 35, 3)),
        ((1, 1, 1), (0, 2, 1), ()),
        ((), (), (1, 1)),
    ],
)
def test_reshaped_strides_are_numpys(shape, order, wanted):
    x = np.arange(np.prod(shape, dtype=int), dtype=np.int8).reshape(shape).transpose(order)
    seen = x.reshape(wanted)
    found = reshaped_strides(x.shape, x.strides, wanted)
    if not np.shares_memory(seen, x):
        assert found is None
    else:
        assert found is not None
        same = [n == 1 or a == b for n, a, b in zip(wanted, found, seen.strides, strict=True)]
        assert all(same)


def test_functions_that_have_caught_a_formula_are_told():
    with tracing() as trace:
        size = trace.input(3)

        def caught(x):
            return x[:size]

        assert not serves_all_sizes(caught)
        assert not serves_all_sizes([Relu(), (1, slice(0, size))])
        assert not serves_all_sizes(np.array([size, 1], object))
        assert not serves_all_sizes(object())  # it cannot be told
        assert serves_all_sizes(_joining([0, 2, 1], 2))
        assert serves_all_sizes({"op": Relu(), "at": np.array(2)})


@pytest.mark.parametrize("channels", [20, 32])
def test_layouts_in_blocks_take_as_much_memory_as_their_sizes_ask(core, channels):
    """oneDNN transposes convolutions of single positions in blocks of 8 or 16 channels."""
    model = models.build(
        [("ConvTranspose", ["x", "w"], ["y"], {})],
        {"x": ["n", channels, 1, 1]},
        ["y"],
        {"w": image(0, channels, 24, 4, 4)},
    )
    executable = load(core, model)
    request = executable.create_infer_request()
    for count in (2, 3, 4, 9, 1, 30):
        x = image(count, count, channels, 1, 1)
        (got,), (wanted,) = request.infer({"x": x}).values(), models.answer(model, {"x": x})
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
        steps = executable.latest_plan().steps
        for value in (value for step in steps for value in step.values):
            assert value.storage.size_bytes == value.descriptor.size_bytes
        implementations = [
            s.primitive.implementation for s in steps if isinstance(s, PrimitiveStep)
        ]
        if "conv:any+jit:avx512_core" in implementations:
            layouts = [value.descriptor.layout for step in steps for value in step.values]
            assert "aBcd16b" in layouts
    assert executable.compiled.templates.filled >= 2


def test_a_primitive_whose_sizes_stay_is_not_even_asked_for(core, monkeypatch):
    """Behind a mean over all positions, sizes are those of the pictures' number alone."""
    weights = {"a": image(1, 8, 3, 3, 3), "b": image(2, 6, 4, 1, 1)}
    nodes = [
        ("Conv", ["x", "a"], ["c"], {}),
        ("GlobalAveragePool", ["c"], ["d"], {}),
        ("Conv", ["d", "b"], ["e"], {"group": 2}),
        ("Relu", ["e"], ["y"], {}),
    ]
    model = models.build(nodes, {"x": ["n", 3, "h", "w"]}, ["y"], weights)
    executable, asked = load(core, model), []
    request = executable.create_infer_request()
    for width in (9, 10, 11, 12):
        request.infer({"x": image(0, 1, 3, 8, width)})
    create = Primitive.create.__func__

    def noted(cls, kind, *arguments):
        asked.extend(each.shape for each in arguments if isinstance(each, Descriptor))
        return create(cls, kind, *arguments)

    monkeypatch.setattr(Primitive, "create", classmethod(noted))
    for n, is_new in ((1, False), (3, True), (3, False)):
        x = image(n, n, 3, 8, 13 + len(asked))
        asked.clear()
        (wanted,) = models.answer(model, {"x": x})
        np.testing.assert_allclose(request.infer({"x": x})["y"], wanted, rtol=1e-5, atol=1e-6)
        assert ((n, 6, 1, 1) in asked) == is_new
    assert executable.compiled.templates.filled
