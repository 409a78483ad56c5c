"""InferRequest.keep_on_device: outputs in device memory of the request's own."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice import Copies, ElementType, RemoteBlob, Shape, TensorDesc
from polydevice.errors import BlobError, RequestBusyError
from tests.cpu.models import answer, build
from tests.gpu.remote import User, affine, convolution

rng = np.random.default_rng(80)


def normal(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype("f4")


def held(blob: RemoteBlob) -> np.ndarray:
    with blob.map("r") as array:
        return array.copy()


def test_an_output_of_any_size_stays_on_the_device(core) -> None:
    model = affine("n", 3)
    executable = core.load_network(core.read_network(model), "GPU")
    request = executable.create_infer_request()
    request.keep_on_device("y")
    blobs = []
    for rows in (2, 2, 5, 0, 2):
        x = normal(rows, 3)
        assert request.infer({"x": x}) == {}
        assert request.copies == Copies(uploads=1 if rows else 0)
        blob = request.get_blob("y")
        assert isinstance(blob, RemoteBlob)
        np.testing.assert_allclose(held(blob), x * 3 + 1, rtol=1e-6, atol=1e-6)
        blobs.append(blob)
    assert blobs[0] is blobs[1], "the same memory while the shape is the same"
    assert blobs[2].shape == (5, 3)


def test_one_network_after_another(core) -> None:
    first = core.load_network(core.read_network(convolution(1, 3, 6, 5)), "GPU")
    second = core.load_network(core.read_network(affine(1, 4, 6, 5)), "GPU")
    one, two = first.create_infer_request(), second.create_infer_request()
    one.keep_on_device("r")
    for _ in range(2):
        x = normal(1, 3, 6, 5)
        right, largest = answer(convolution(1, 3, 6, 5), {"x": x})
        found = one.infer({"x": x})
        assert list(found) == ["y"]
        np.testing.assert_allclose(found["y"], largest, rtol=1e-4, atol=1e-5)
        y = two.infer({"x": one.get_blob("r")})["y"]
        assert one.copies + two.copies == Copies(uploads=1, downloads=2)
        np.testing.assert_allclose(y, right * 3 + 1, rtol=1e-4, atol=1e-5)


def test_memory_to_be_used(core) -> None:
    """Blobs that take turns; memory of another shape is left alone, and new memory used."""
    executable = core.load_network(core.read_network(affine("n", 3)), "GPU")
    request = executable.create_infer_request()
    desc = TensorDesc(ElementType.f32, Shape([2, 3]))
    two = [executable.get_context().create_blob(desc) for _ in range(2)]
    for turn in range(4):
        request.keep_on_device("y", two[turn % 2])
        x = normal(2, 3)
        request.infer({"x": x})
        assert request.get_blob("y") is two[turn % 2]
        np.testing.assert_allclose(held(two[turn % 2]), x * 3 + 1, rtol=1e-6, atol=1e-6)
    before = held(two[1])
    x = normal(4, 3)
    request.infer({"x": x})
    assert request.get_blob("y").shape == (4, 3)
    np.testing.assert_array_equal(held(two[1]), before)
    two[0].release()
    with pytest.raises(BlobError, match="released"):
        request.keep_on_device("y", two[0])


def test_set_blob_ends_it(core) -> None:
    executable = core.load_network(core.read_network(affine(2, 3)), "GPU")
    request = executable.create_infer_request()
    x = normal(2, 3)
    request.keep_on_device("y")
    request.infer({"x": x})
    kept = request.get_blob("y")
    into = np.zeros((2, 3), "f4")
    request.set_blob("y", into)
    assert request.infer({"x": x + 1})["y"] is into
    np.testing.assert_allclose(into, x * 3 + 4, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(held(kept), x * 3 + 1, rtol=1e-6, atol=1e-6)
    request.keep_on_device("y")
    assert request.infer({"x": x}) == {}
    assert request.get_blob("y") is not kept


def test_what_the_host_computes_stays_on_the_host(core) -> None:
    """Sizes that depend on data are known too late for memory of the device."""
    model = build([("NonZero", ["x"], ["places"], {})], {"x": (3, 4)}, ["places"], {})
    request = core.load_network(core.read_network(model), "GPU").create_infer_request()
    request.keep_on_device("places")
    for _ in range(2):
        x = np.maximum(normal(3, 4), 0)
        np.testing.assert_array_equal(request.infer({"x": x})["places"], np.nonzero(x))


def test_on_cpu_nothing_changes(core) -> None:
    request = core.load_network(core.read_network(affine(2, 3)), "CPU").create_infer_request()
    request.keep_on_device("y")
    x = normal(2, 3)
    np.testing.assert_allclose(request.infer({"x": x})["y"], x * 3 + 1, rtol=1e-6)


def test_what_cannot_be_kept(core, opencl) -> None:
    executable = core.load_network(core.read_network(affine(2, 3)), "GPU")
    request = executable.create_infer_request()
    with pytest.raises(BlobError, match="'x' is an input; outputs: y"):
        request.keep_on_device("x")
    with pytest.raises(BlobError, match="no input or output 'z'"):
        request.keep_on_device("z")
    other = core.create_context("GPU", User(opencl).params)
    with pytest.raises(BlobError, match="memory of another context"):
        request.keep_on_device("y", other.create_blob(executable.outputs["y"].desc))
    assert request._busy.acquire(blocking=False)
    try:
        with pytest.raises(RequestBusyError):
            request.keep_on_device("y")
    finally:
        request._busy.release()
    x = normal(2, 3)
    np.testing.assert_allclose(request.infer({"x": x})["y"], x * 3 + 1, rtol=1e-6, atol=1e-6)
