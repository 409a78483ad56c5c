"""What a network computes on CPU, whatever was fused, reordered or shared for speed."""

from __future__ import annotations

import concurrent.futures
import gc
import os
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice.ops.arithmetic import Add
from polydevice.ops.control_flow import If
from polydevice.ops.io import Constant, Parameter
from polydevice.runtime.plan_cache import LEAST_BYTES
from polydevice_cpu.algorithms.by_machine.code import has_avx512, has_vectors
from polydevice_cpu.onednn.library import library
from polydevice_cpu.plan import value
from polydevice_cpu.plan.array_steps.start import has_starter
from polydevice_cpu.plan.compiled import CompiledNetwork
from tests.cpu import models
from tests.cpu.loading import has_avx2, image, load, steps
from tests.cpu.machine_code import followed

needs_onednn = pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine")


def check(got, want, rtol=1e-4):
    assert len(got) == len(want)
    for ours, theirs in zip(got.values(), want, strict=True):
        assert ours.shape == theirs.shape
        assert ours.dtype == theirs.dtype
        scale = np.abs(theirs).max(initial=0)
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=rtol * scale)


@pytest.mark.parametrize("channels", [12, 16, 37])
@pytest.mark.parametrize("threads", ["1", "2"])
def test_residual_network(core, channels, threads):
    model = models.residual(channels)
    x = image(1, 2, 3, 14, 14)
    executable = load(core, model, CPU_THREADS_NUM=threads)
    check(executable.infer({"x": x}), models.answer(model, {"x": x}))


def test_the_hundredth_run_is_the_first(core):
    request = load(core, models.residual()).create_infer_request()
    x = image(2, 2, 3, 14, 14)
    first = {name: array.copy() for name, array in request.infer({"x": x}).items()}
    for number in range(100):
        request.infer({"x": image(number, 2, 3, 14, 14)})
        again = request.infer({"x": x})
    for name, array in first.items():
        np.testing.assert_array_equal(array, again[name])


def test_requests_of_many_threads_do_not_mix(core):
    model = models.residual()
    executable = load(core, model, CPU_THREADS_NUM="2", CPU_THROUGHPUT_STREAMS="2")
    inputs = [image(seed, 2, 3, 14, 14) for seed in range(8)]
    wanted = [models.answer(model, {"x": x}) for x in inputs]

    def work(k):
        request = executable.create_infer_request()
        for _ in range(25):
            check(request.infer({"x": inputs[k]}), wanted[k])
            request.start_async({"x": inputs[k - 1]})
            request.wait()
            got = {name: request.get_blob(name).array for name in executable.outputs}
            check(got, wanted[k - 1])

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))


@needs_onednn
def test_what_is_fused(core):
    assert steps(load(core, models.residual(16))) == [
        "Reorder",  # the image, to channels-last
        "Convolution+Add+ReLU",  # batch normalisation is in the weights and the bias
        "Convolution+Add+PReLU",  # what is added is of the same value: it is in the weights
        *followed("GroupConvolution", "Swish"),
        "Convolution",
        "Concat",
        "MaxPool",
        "ReduceMean",
        "MatMul+Add",
        "SoftMax",
        *["SpreadNaN"] * (not has_vectors()),
        "Reorder",  # the output p1, to row-major
    ]


@needs_onednn
def test_a_residual_is_added_in_place_only_at_its_last_use(core):
    """Two blocks: the first input is read again later, the second one is not."""
    rng = np.random.default_rng(3)
    weights = {n: rng.normal(0, 0.1, (16, 16, 3, 3)).astype(np.float32) for n in "abc"}
    same = {"pads": [1, 1, 1, 1]}
    nodes = [
        ("Conv", ["x", "a"], ["x0"], same),
        ("Relu", ["x0"], ["x1"], {}),
        ("Conv", ["x1", "b"], ["b1"], same),
        ("Relu", ["b1"], ["b2"], {}),
        ("Conv", ["b2", "c"], ["b3"], same),
        ("Add", ["b3", "x1"], ["x2"], {}),
        ("Conv", ["x2", "b"], ["c1"], same),
        ("Relu", ["c1"], ["c2"], {}),
        ("Conv", ["c2", "c"], ["c3"], same),
        ("Add", ["c3", "x2"], ["x3"], {}),
        ("MatMul", ["x3", "x1"], ["y"], {}),
    ]
    model = models.build(nodes, {"x": [1, 16, 6, 6]}, ["y"], weights)
    x = image(11, 1, 16, 6, 6)
    executable = load(core, model)
    request = executable.create_infer_request()
    for _ in range(2):
        check(request.infer({"x": x}), models.answer(model, {"x": x}))
    shared = [
        value
        for step in request.runner.bound.plan.steps
        for value in step.values
        if value.storage.root is not value.storage
    ]
    assert len({id(value.storage) for value in shared}) == has_avx2()  # else nothing is added


def test_outputs_are_written_in_place(core):
    model = models.residual()
    request = load(core, model).create_infer_request()
    mine = np.zeros((2, 5), np.float32)
    request.set_blob("y", mine)
    x = image(3, 2, 3, 14, 14)
    request.infer({"x": x})
    want = models.answer(model, {"x": x})
    np.testing.assert_allclose(mine, want[0], rtol=1e-4, atol=1e-5)
    x[...] = image(4, 2, 3, 14, 14)  # the request reads the caller's array in place
    request.infer()
    np.testing.assert_allclose(mine, models.answer(model, {"x": x})[0], rtol=1e-4, atol=1e-5)


def test_constants_of_one_repeated_number(core):
    """Folding gives them strides of 0."""
    weights = {"shape": np.array([4, 3, 1, 1], np.int64), "vector": np.array([4, 1, 1], np.int64)}
    nodes = [
        ("ConstantOfShape", ["shape"], ["w"], {"value": helper.make_tensor("v", 1, [1], [0.5])}),
        ("ConstantOfShape", ["vector"], ["b"], {"value": helper.make_tensor("v", 1, [1], [0.25])}),
        ("Conv", ["x", "w"], ["c"], {}),
        ("Add", ["c", "b"], ["y"], {}),
        ("Sub", ["b", "c"], ["z"], {}),
    ]
    model = models.build(nodes, {"x": [1, 3, 4, 5]}, ["y", "z"], weights)
    x = image(12, 1, 3, 4, 5)
    check(load(core, model).infer({"x": x}), models.answer(model, {"x": x}))


def test_the_first_positions_of_a_constant_table(core):
    """A slice [1, S, D] of [1, T, D] is contiguous for NumPy whatever the first stride says."""
    nodes = [
        ("Shape", ["x"], ["size"], {"start": 1, "end": 2}),
        ("Slice", ["table", "zero", "size", "one"], ["positions"], {}),
        ("Add", ["x", "positions"], ["y"], {}),
    ]
    weights = {"table": image(3, 1, 64, 8), "zero": np.array([0]), "one": np.array([1])}
    model = models.build(nodes, {"x": ["n", "s", 8]}, ["y"], weights)
    executable = load(core, model)
    for x in (image(4, 1, 20, 8), image(5, 3, 7, 8), image(6, 1, 1, 8)):
        check(executable.infer({"x": x}), models.answer(model, {"x": x}))


def test_inputs_in_any_memory_order(core):
    model = models.residual()
    request = load(core, model).create_infer_request()
    x = image(5, 14, 14, 3, 2).transpose(3, 2, 0, 1)
    check(request.infer({"x": x}), models.answer(model, {"x": np.ascontiguousarray(x)}))


def test_shapes_in_turn_are_planned_once(core, monkeypatch):
    made = []
    make = CompiledNetwork._make
    monkeypatch.setattr(CompiledNetwork, "_make", lambda *a: made.append(a[1]) or make(*a))
    model = models.residual(batch="n", size="s")
    executable = load(core, model)
    request = executable.create_infer_request()
    inputs = [image(n, 1 + n % 3, 3, 8 + n, 8 + n) for n in range(40)]
    right = [models.answer(model, {"x": x}) for x in inputs]
    for _ in range(3):
        for x, expected in zip(inputs, right, strict=True):
            check(request.infer({"x": x}), expected)
    assert len(made) == len(request.runner.plans.bindings) == len(inputs)


def test_plans_are_kept_as_far_as_they_fit(core, monkeypatch):
    monkeypatch.setattr("polydevice.runtime.plan_cache.PLANS_BYTES", 3 * LEAST_BYTES)
    model = models.residual(batch="n", size="s")
    executable = load(core, model)
    one, other = (executable.create_infer_request() for _ in range(2))
    for number in range(12):
        x = image(number, 1 + number % 3, 3, 8 + number, 8 + number)
        check((one, other)[number % 2].infer({"x": x}), models.answer(model, {"x": x}))
    assert len(executable.compiled.plans.plans()) == 3
    for request in (one, other):  # what nobody can find any more is not bound either
        assert len(request.runner.plans.bindings) <= 3
    plan = other.runner.bound.plan
    other.infer({"x": x})
    assert other.runner.bound.plan is plan


def test_a_workspace_grows_with_the_shapes_and_serves_the_smaller_ones(core):
    executable = load(core, models.residual(batch="n", size="s"))
    request = executable.create_infer_request()
    sizes = (24, 8, 12, 32, 16)
    for size in sizes:
        request.infer({"x": image(size, 1, 3, size, size)})
    bound = [request.runner.plans.bound(((1, 3, size, size),)) for size in sizes]
    first, *_, largest = {id(each._binder.arena): each._binder.arena for each in bound}.values()
    assert [each._binder.arena is first for each in bound] == [True, True, True, False, False]
    assert largest.size >= 1.5 * first.size


def test_weights_are_packed_once_for_all_shapes_and_requests(core):
    executable = load(core, models.residual(16, batch="n"))
    sizes = []
    for batch in (1, 2, 3, 4):
        executable.create_infer_request().infer({"x": image(0, batch, 3, 14, 14)})
        sizes.append(executable.get_metric("WEIGHTS_BYTES"))
    # Of one row oneDNN multiplies by weights as they lie, where it has no AVX-512.
    assert sizes[-1] == sizes[not has_avx512()]


def data_dependent():
    """Rows of x that are positive in column 0, times a matrix: how many there are is data."""
    weights = {
        "zero": np.zeros((), np.float32),
        "column": np.zeros((), np.int64),
        "w": image(0, 6, 4),
        "axes": np.array([0], np.int64),
    }
    nodes = [
        ("Relu", ["x"], ["positive"], {}),
        ("Gather", ["positive", "column"], ["first"], {"axis": 1}),
        ("Greater", ["first", "zero"], ["mask"], {}),
        ("NonZero", ["mask"], ["where2"], {}),
        ("Squeeze", ["where2", "axes"], ["where"], {}),
        ("Gather", ["positive", "where"], ["rows"], {"axis": 0}),
        ("MatMul", ["rows", "w"], ["product"], {}),
        ("Relu", ["product"], ["y"], {}),
    ]
    return models.build(nodes, {"x": ["n", 6]}, ["y", "positive"], weights)


def test_sizes_that_only_the_data_tells(core):
    model = data_dependent()
    request = load(core, model).create_infer_request()
    for seed in range(6):
        x = image(seed, 9, 6)
        check(request.infer({"x": x}), models.answer(model, {"x": x}))
    x = -np.abs(image(7, 9, 6))  # no row at all
    check(request.infer({"x": x}), models.answer(model, {"x": x}))


def test_all_views_of_one_value(core):
    """Transposed, cut and reshaped values are views; a view's reader may not see later writes."""
    weights = {
        "shape": np.array([2, 6, 4], np.int64),
        "back": np.array([2, 24], np.int64),
        "begin": np.array([1], np.int64),
        "end": np.array([5], np.int64),
        "axis": np.array([1], np.int64),
    }
    nodes = [
        ("Reshape", ["x", "shape"], ["a"], {}),
        ("Transpose", ["a"], ["b"], {"perm": [0, 2, 1]}),
        ("Reshape", ["b", "back"], ["c"], {}),
        ("Slice", ["a", "begin", "end", "axis"], ["d"], {}),
        ("Split", ["a"], ["e", "f"], {"axis": 2}),
        ("Add", ["e", "f"], ["g"], {}),
        ("MatMul", ["a", "b"], ["h"], {}),
    ]
    model = models.build(nodes, {"x": [2, 24]}, ["b", "c", "d", "g", "h"], weights, opset=13)
    x = image(8, 2, 24)
    check(load(core, model).infer({"x": x}), models.answer(model, {"x": x}), 1e-5)


def test_perf_counts_name_every_layer(core):
    executable = load(core, models.residual(), PERF_COUNT="YES")
    request = executable.create_infer_request()
    request.infer({"x": image(0, 2, 3, 14, 14)})
    counts = request.get_perf_counts()
    executed = {k: v for k, v in counts.items() if v["status"] == "EXECUTED"}
    assert executed
    assert all(v["exec_type"] not in ("", "undef") for v in executed.values())
    names = {place.node for place in executable.placement() if place.type != "Const"}
    assert names <= set(counts)


def test_times_of_layers_that_run_together_are_said_once(core):
    """Behind NonZero layers run in one step, whose time stands at the first of them."""
    executable = load(core, data_dependent(), PERF_COUNT="YES")
    request = executable.create_infer_request()
    request.infer({"x": image(0, 9, 6)})
    counts = request.get_perf_counts()
    times = [counts[name]["real_time"] for name in ("rows", "product", "y")]
    assert times == [0, 0, 0], counts


def test_without_onednn_everything_still_works(tmp_path):
    model = tmp_path / "model.onnx"
    model.write_bytes(models.residual())
    x = image(10, 2, 3, 14, 14)
    np.save(tmp_path / "x.npy", x)
    code = """
        import sys, numpy as np
        from polydevice import Core
        folder = sys.argv[1]
        with Core() as core:
            executable = core.load_network(folder + "/model.onnx", "CPU")
            result = executable.infer({"x": np.load(folder + "/x.npy")})
            np.save(folder + "/y.npy", result["y"])
            assert "BF16" not in core.get_metric("CPU", "OPTIMIZATION_CAPABILITIES")
            assert "onednn-cpu-gomp" in core.get_metric("CPU", "ONEDNN")
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)],
        env={**os.environ, "DNNL_LIB": str(tmp_path / "missing.so.3")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("onednn-cpu-gomp") == 1, "one message, once"
    want = models.answer(model.read_bytes(), {"x": x})
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), want[0], rtol=1e-4, atol=1e-5)


def test_a_forked_child_infers_with_what_was_loaded(tmp_path):
    model = tmp_path / "model.onnx"
    model.write_bytes(models.residual())
    code = """
        import os, sys, numpy as np
        from polydevice import Core
        core = Core()
        executable = core.load_network(sys.argv[1], "CPU", {"CPU_THREADS_NUM": "2"})
        request = executable.create_infer_request()
        x = np.ones((2, 3, 14, 14), np.float32)
        before = request.infer({"x": x})["y"].copy()
        request.start_async(); request.wait()
        pid = os.fork()
        if pid == 0:
            same = np.array_equal(request.infer({"x": x})["y"], before)
            request.start_async(); request.wait()
            os._exit(0 if same else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    """
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code), str(model)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.stdout.strip() == "0", result.stderr


@needs_onednn
def test_what_passes_make_of_weights_is_kept_packed_alone(core) -> None:
    """f16 weights as they are in the model, and in f32 as oneDNN reads them; made anew for more."""
    size = 1536
    rng = np.random.default_rng(3)
    stored = numpy_helper.from_array(rng.normal(size=(size, size)).astype(np.float16), "w")
    nodes = [helper.make_node("Cast", ["w"], ["wide"], to=1)]
    nodes.append(helper.make_node("MatMul", ["x", "wide"], ["y"]))
    given, made = (helper.make_tensor_value_info(name, 1, [4, size]) for name in "xy")
    graph = helper.make_graph(nodes, "g", [given], [made], [stored])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    executable = load(core, model.SerializeToString(), CPU_THREADS_NUM=2)
    gc.collect()
    constants = [item.value for item in gc.get_objects() if isinstance(item, Constant)]
    assert not [a for a in constants if a.dtype == np.float32 and a.shape == (size, size)]
    packed = executable.get_metric("WEIGHTS_BYTES")
    assert packed >= 4 * size * size
    x = image(4, 4, size)
    want = x @ numpy_helper.to_array(stored).astype(np.float32)
    for _ in range(2):
        check(executable.create_infer_request().infer({"x": x}), [want])
        assert executable.get_exec_graph_info().nodes()
        executable.compiled.plans.clear()  # so that another one is made
    assert executable.get_metric("WEIGHTS_BYTES") == packed  # packed again, and found to be there


def test_which_operations_are_computed_on_arrays() -> None:
    """Those with a function, and those with a step of their own."""
    assert has_starter(Add)
    assert has_starter(If)
    assert not has_starter(Parameter)


@needs_onednn
def test_an_image_made_of_tokens_is_resized_by_onednn(core):
    """Its channels lie next to each other, which the stride of an only image must not hide."""
    weights = {"shape": np.int64([1, 8, 4, 4]), "sizes": np.int64([1, 8, 9, 16])}
    nodes = [
        ("Relu", ["x"], ["r"], {}),
        ("Transpose", ["r"], ["t"], {"perm": [0, 2, 1]}),
        ("Reshape", ["t", "shape"], ["image"], {}),
        ("Resize", ["image", "", "", "sizes"], ["y"], {"mode": "linear"}),
    ]
    model = models.build(nodes, {"x": [1, 16, 8]}, ["y"], weights)
    given = {"x": image(1, 1, 16, 8)}
    executable = load(core, model)
    check(executable.infer(given), models.answer(model, given))
    request = executable.create_infer_request()
    request.infer(given)
    found = {step.type: step.implementation for step in request.runner.bound.plan.steps}
    assert found["Interpolate"] != "numpy"


@needs_onednn
def test_threads_that_bind_at_once_get_the_same_memory_of_a_constant(monkeypatch):
    """A request has its handle, which another thread's must not replace."""
    make, barrier = value.MemoryObject, threading.Barrier(4)

    def slowly(*arguments):
        made = make(*arguments)
        barrier.wait()  # nobody has kept his yet
        return made

    monkeypatch.setattr(value, "MemoryObject", slowly)
    array = image(0, 4, 4)
    storage = value.Storage(value.Kind.CONSTANT, array.nbytes, array=array)
    constant = value.Value(storage, (4, 4), array.dtype, (4, 1))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: constant.constant_memory, range(4)))
    assert all(memory is constant.constant_memory for memory in found)


def test_parts_and_outputs_without_elements_take_no_step(core):
    kind = TensorProto.INT64
    inputs = [helper.make_tensor_value_info(n, kind, [k, 4]) for n, k in (("x", 3), ("e", 0))]
    nodes = [
        helper.make_node("Concat", ["e", "x", "e"], ["joined"], axis=0),
        helper.make_node("Transpose", ["e"], ["nothing"], perm=[1, 0]),
    ]
    outputs = [helper.make_tensor_value_info(n, kind, None) for n in ("joined", "nothing")]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    executable = load(core, model.SerializeToString())
    x = np.arange(12).reshape(3, 4)
    got = executable.infer({"x": x, "e": x[:0]})
    np.testing.assert_array_equal(got["joined"], x)
    assert got["nothing"].shape == (4, 0)
    types = [step.type for step in executable.latest_plan().steps]
    assert types.count("Concat") == 1
    assert "Copy" not in types
