"""Remote blobs: device memory as inputs and outputs, in place."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from polydevice import Blob, Copies, ElementType
from polydevice.errors import BlobError
from tests.cpu.models import answer, build
from tests.gpu.remote import NOTHING, affine, convolution, desc, exact, held

SHAPE = (2, 3, 5, 7)


@pytest.mark.parametrize("shape", [(1, 3, 5, 7), (2, 1, 16, 16), (1, 5, 1, 33)])
def test_nothing_crosses_to_the_host(core, shape, rng) -> None:
    model = convolution(*shape)
    executable = core.load_network(core.read_network(model), "GPU")
    context = executable.get_context()
    request = executable.create_infer_request()
    source = context.create_blob(executable.inputs["x"].desc)
    results = {n: context.create_blob(port.desc) for n, port in executable.outputs.items()}
    for name, blob in {"x": source, **results}.items():
        request.set_blob(name, blob)
        assert request.get_blob(name) is blob
    for _ in range(3):  # the first run after set_blob takes another way than later ones
        x = exact(rng, *shape)
        source.copy_from(x)
        assert request.infer() == {}
        assert request.copies == NOTHING
        for blob, right in zip(results.values(), answer(model, {"x": x}), strict=True):
            np.testing.assert_allclose(held(blob), right, rtol=1e-4, atol=1e-5)
    host = executable.create_infer_request()
    host.infer({"x": x})
    assert host.copies == Copies(uploads=1, downloads=2)


def test_some_remote_and_some_not(core, rng) -> None:
    model = convolution(*SHAPE)
    executable = core.load_network(core.read_network(model), "GPU")
    context = executable.get_context()
    request = executable.create_infer_request()
    x = exact(rng, *SHAPE)
    right = dict(zip(["r", "y"], answer(model, {"x": x})))
    blob = context.create_blob(executable.outputs["r"].desc)
    request.set_blob("r", blob)
    found = request.infer({"x": x})
    assert list(found) == ["y"]
    assert request.copies == Copies(uploads=1, downloads=1)
    np.testing.assert_allclose(found["y"], right["y"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(held(blob), right["r"], rtol=1e-4, atol=1e-5)
    # Back to host memory.
    request.set_blob("r", np.zeros(executable.outputs["r"].sizes, "f4"))
    blob.copy_from(np.zeros(blob.shape, "f4"))
    found = request.infer({"x": 2 * x})
    right = dict(zip(["r", "y"], answer(model, {"x": 2 * x})))
    np.testing.assert_allclose(found["r"], right["r"], rtol=1e-4, atol=1e-5)
    assert not held(blob).any()


def test_blobs_are_given_to_infer_and_start_async(core, rng) -> None:
    executable = core.load_network(core.read_network(affine(*SHAPE)), "GPU")
    x = exact(rng, *SHAPE)
    blob = executable.get_context().create_blob(executable.inputs["x"].desc)
    blob.copy_from(x)
    request = executable.create_infer_request()
    np.testing.assert_array_equal(request.infer({"x": blob})["y"], x * 3 + 1)
    assert request.copies == Copies(downloads=1)
    request.infer({"x": x * 0})
    request.start_async({"x": blob})
    request.wait()
    np.testing.assert_array_equal(request.get_blob("y").array, x * 3 + 1)


def test_chained_networks_pass_blobs(core, rng) -> None:
    first = core.load_network(core.read_network(convolution(*SHAPE)), "GPU")
    second = core.load_network(core.read_network(affine(2, 4, 5, 7)), "GPU")
    context = core.get_default_context("GPU")
    middle = context.create_blob(first.outputs["r"].desc)
    x = exact(rng, *SHAPE)
    one, two = first.create_infer_request(), second.create_infer_request()
    one.set_blob("r", middle)
    two.set_blob("x", middle)
    one.infer({"x": x})
    y = two.infer()["y"]
    assert two.copies == Copies(downloads=1)
    right = answer(convolution(*SHAPE), {"x": x})[0]
    np.testing.assert_allclose(y, right * 3 + 1, rtol=1e-4, atol=1e-5)


def test_output_fed_back_as_input(core, rng) -> None:
    """In one request the same memory is read and written: the input is copied on the device."""
    model = convolution(1, 4, 6, 5)
    executable = core.load_network(core.read_network(model), "GPU")
    request = executable.create_infer_request()
    blob = executable.get_context().create_blob(executable.inputs["x"].desc)
    x = exact(rng, 1, 4, 6, 5)
    blob.copy_from(x)
    request.set_blob("x", blob)
    request.set_blob("r", blob)
    for _ in range(3):
        request.infer()
        assert request.copies == Copies(downloads=1, on_device=1)
        x = answer(model, {"x": x})[0]
        np.testing.assert_allclose(held(blob), x, rtol=1e-3, atol=1e-4)


def test_states_that_swap_places(core, rng) -> None:
    executable = core.load_network(core.read_network(affine(*SHAPE, factor=0.5)), "GPU")
    request = executable.create_infer_request()
    context = executable.get_context()
    one, two = (context.create_blob(executable.inputs["x"].desc) for _ in range(2))
    x = exact(rng, *SHAPE)
    one.copy_from(x)
    for _ in range(5):
        request.set_blob("x", one)
        request.set_blob("y", two)
        request.infer()
        assert request.copies == NOTHING
        one, two = two, one
        x = x * np.float32(0.5) + np.float32(1)
        np.testing.assert_allclose(held(one), x, rtol=1e-6)


def test_two_outputs_cannot_be_one_memory(core) -> None:
    nodes = [("Relu", ["x"], ["a"], {}), ("Neg", ["x"], ["b"], {})]
    executable = core.load_network(
        core.read_network(build(nodes, {"x": [3]}, ["a", "b"], {})), "GPU"
    )
    request = executable.create_infer_request()
    blob = executable.get_context().create_blob(executable.outputs["a"].desc)
    request.set_blob("a", blob)
    request.set_blob("b", blob)
    with pytest.raises(BlobError, match="output 'b' shares memory with another output"):
        request.infer({"x": np.zeros(3, "f4")})


def test_identity_constant_and_doubled_outputs(core, rng) -> None:
    """Values that are not computed by a launch of their own."""
    nodes = [
        ("Identity", ["x"], ["same"], {}),
        ("Reshape", ["x", "shape"], ["flat"], {}),
        ("Relu", ["x"], ["r"], {}),
        ("Concat", ["r", "x"], ["joined"], {"axis": 0}),
    ]
    weights = {"shape": np.array([-1], np.int64)}
    model = build(nodes, {"x": [3, 5]}, ["same", "flat", "r", "joined"], weights)
    executable = core.load_network(core.read_network(model), "GPU")
    request = executable.create_infer_request()
    x = exact(rng, 3, 5)
    blobs = {}
    for name, port in (executable.inputs | executable.outputs).items():
        blobs[name] = executable.get_context().create_blob(port.desc)
        request.set_blob(name, blobs[name])
    blobs["x"].copy_from(x)
    for _ in range(2):
        request.infer()
        assert request.copies == NOTHING
        for name, right in zip(executable.outputs, answer(model, {"x": x}), strict=True):
            np.testing.assert_array_equal(held(blobs[name]), right)


@pytest.mark.parametrize("kind", [np.float16, np.float64, np.int32, np.int64])
def test_element_types(core, kind, rng) -> None:
    executable = core.load_network(core.read_network(affine(3, 5, kind=kind)), "GPU")
    request = executable.create_infer_request()
    context = executable.get_context()
    x = rng.integers(-9, 9, (3, 5)).astype(kind)
    source = context.create_blob(executable.inputs["x"].desc)
    result = context.create_blob(executable.outputs["y"].desc)
    source.copy_from(x)
    request.set_blob("x", source)
    request.set_blob("y", result)
    request.infer()
    assert request.copies == NOTHING
    np.testing.assert_array_equal(held(result), x * kind(3) + kind(1))


def test_f16_between_layers_with_f32_blobs(core, rng) -> None:
    model = convolution(*SHAPE)
    executable = core.load_network(
        core.read_network(model), "GPU", {"INFERENCE_PRECISION_HINT": "f16"}
    )
    request = executable.create_infer_request()
    context = executable.get_context()
    x = exact(rng, *SHAPE)
    source = context.create_blob(executable.inputs["x"].desc)
    source.copy_from(x)
    request.set_blob("x", source)
    results = {n: context.create_blob(port.desc) for n, port in executable.outputs.items()}
    for name, blob in results.items():
        request.set_blob(name, blob)
    request.infer()
    assert request.copies == NOTHING
    for blob, right in zip(results.values(), answer(model, {"x": x}), strict=True):
        assert blob.element_type is ElementType.f32
        np.testing.assert_allclose(held(blob), right, atol=0.02)


def test_host_layers_cross_and_are_counted(core) -> None:
    nodes = [
        ("Relu", ["x"], ["r"], {}),
        ("NonZero", ["r"], ["found"], {}),
    ]
    executable = core.load_network(
        core.read_network(build(nodes, {"x": [6]}, ["r", "found"], {})), "GPU"
    )
    request = executable.create_infer_request()
    context = executable.get_context()
    x = np.array([1, -2, 0, 3, -4, 5], "f4")
    source, result = (context.create_blob(executable.inputs["x"].desc) for _ in range(2))
    source.copy_from(x)
    request.set_blob("x", source)
    request.set_blob("r", result)
    found = request.infer()["found"]
    np.testing.assert_array_equal(found, [[0, 3, 5]])
    np.testing.assert_array_equal(held(result), np.maximum(x, 0))
    assert request.copies.with_host == 1  # what the host layer reads


def test_dynamic_shapes(core, rng) -> None:
    executable = core.load_network(core.read_network(affine("n", 3)), "GPU")
    request = executable.create_infer_request()
    context = executable.get_context()
    for rows in (2, 5, 2):
        x = exact(rng, rows, 3)
        source, result = context.create_blob(desc(x)), context.create_blob(desc(x))
        source.copy_from(x)
        request.set_blob("x", source)
        request.set_blob("y", result)
        request.infer()
        assert request.copies == NOTHING
        np.testing.assert_array_equal(held(result), x * 3 + 1)
    request.set_blob("x", context.create_blob(desc(exact(rng, 4, 3))))
    with pytest.raises(BlobError, match=r"output 'y' has shape \[4,3\].*but is .*\[2,3\]"):
        request.infer()


def test_dynamic_batch(core, rng) -> None:
    network = core.read_network(affine(4, 3))
    executable = core.load_network(network, "GPU", {"DYN_BATCH_ENABLED": "YES"})
    request = executable.create_infer_request()
    context = executable.get_context()
    x = exact(rng, 4, 3)
    source, result = context.create_blob(desc(x)), context.create_blob(desc(x))
    source.copy_from(x)
    result.copy_from(np.full_like(x, 9))
    request.set_blob("x", source)
    request.set_blob("y", result)
    request.set_batch(3)
    request.infer()
    right = np.full_like(x, 9)
    right[:3] = x[:3] * 3 + 1
    np.testing.assert_array_equal(held(result), right)


@pytest.mark.parametrize(("shape", "layout"), [((4, 2, 6, 5), "NCHW"), ((4, 6, 5, 2), "NHWC")])
@pytest.mark.parametrize("corner", [(0, 0, 5, 6), (1, 2, 3, 4), (0, 2, 5, 4)])
def test_dynamic_batch_of_regions(core, shape, layout, corner, rng) -> None:
    context = core.get_default_context("GPU")
    x = exact(rng, *shape)
    source = context.create_blob(desc(x))
    source.copy_from(x)
    part, right = source.roi(*corner, layout), Blob(x).roi(*corner, layout).array * 3 + 1
    network = core.read_network(affine(*part.shape))
    executable = core.load_network(network, "GPU", {"DYN_BATCH_ENABLED": "YES"})
    request = executable.create_infer_request()
    request.set_blob("x", part)
    for batch in (4, 3, 1):
        request.set_batch(batch)
        np.testing.assert_array_equal(request.infer()["y"][:batch], right[:batch])


def test_many_threads(core, rng) -> None:
    """Requests with blobs of their own, and some on the same input."""
    model = convolution(*SHAPE)
    executable = core.load_network(core.read_network(model), "GPU", {"GPU_THROUGHPUT_STREAMS": "3"})
    context = executable.get_context()
    x = exact(rng, *SHAPE)
    right = answer(model, {"x": x})[0]
    shared = context.create_blob(executable.inputs["x"].desc)
    shared.copy_from(x)
    wrong: list[int] = []

    def work(number: int) -> None:
        request = executable.create_infer_request()
        for turn in range(10):
            result = context.create_blob(executable.outputs["r"].desc)
            request.set_blob("x", shared)
            request.set_blob("r", result)
            if turn % 2:
                request.infer()
            else:
                request.start_async()
                request.wait()
            if not np.allclose(held(result), right, rtol=1e-4, atol=1e-5):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_infer_queue(core, rng) -> None:
    executable = core.load_network(core.read_network(affine(3, 5)), "GPU")
    context = executable.get_context()
    queue = executable.infer_queue(3)
    results = {}
    for index, request in enumerate(queue):
        results[index] = context.create_blob(executable.outputs["y"].desc)
        request.set_blob("y", results[index])
    found = []
    queue.set_callback(lambda request, x: found.append((x, held(request.get_blob("y")))))
    for _ in range(20):
        x = exact(rng, 3, 5)
        blob = context.create_blob(executable.inputs["x"].desc)
        blob.copy_from(x)
        queue.start_async({"x": blob}, x)
    queue.wait_all()
    assert len(found) == 20
    for x, y in found:
        np.testing.assert_array_equal(y, x * 3 + 1)
