"""Device memory of the user's as inputs and outputs of HETERO."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice import Copies, ElementType, Shape, TensorDesc
from polydevice.errors import BlobError, DeviceError
from tests.cpu.models import answer, build
from tests.hetero.networks import WEIGHTS, by_type, check, held, normal, place, there_and_back

F32 = ElementType.f32


def test_remote_inputs_and_outputs(core) -> None:
    model = there_and_back(2, 3, outputs=("y", "a"))
    network = core.read_network(model)
    executable = core.load_network(network, "HETERO:GPU,CPU")
    assert len(executable.parts) == 1
    context = executable.get_context()
    assert context is core.get_default_context("GPU")
    request = executable.create_infer_request()
    blobs = {
        name: context.create_blob(port.desc)
        for name, port in {**executable.inputs, **executable.outputs}.items()
    }
    for name, blob in blobs.items():
        request.set_blob(name, blob)
        assert request.get_blob(name) is blob
    for _ in range(2):
        x = normal(2, 3)
        blobs["x"].copy_from(x)
        assert request.infer() == {}
        assert request.copies == Copies()
        for name, right in zip(("y", "a"), answer(model, {"x": x}), strict=True):
            np.testing.assert_allclose(held(blobs[name]), right, rtol=1e-5, atol=1e-6)
    # Back to host memory; the blobs are left alone.
    for name in ("y", "a"):
        request.set_blob(name, np.zeros((2, 3), "f4"))
        blobs[name].copy_from(np.zeros((2, 3), "f4"))
    check(request, model, normal(2, 3))
    assert not held(blobs["y"]).any()


def test_remote_inputs_that_the_host_reads_too(core) -> None:
    nodes = [("Mul", ["x", "three"], ["a"], {}), ("Tanh", ["x"], ["b"], {})]
    model = build([*nodes, ("Add", ["a", "b"], ["y"], {})], {"x": (4, 6)}, ["y", "b"], WEIGHTS)
    network = place(core.read_network(model), by_type(Tanh="CPU"))
    executable = core.load_network(network, "HETERO:GPU,CPU")
    context = executable.get_context()
    request = executable.create_infer_request()
    x = normal(4, 6)
    whole = context.create_blob(executable.inputs["x"].desc)
    whole.copy_from(x)
    request.set_blob("x", whole)
    result = context.create_blob(executable.outputs["y"].desc)
    request.set_blob("y", result)
    right = answer(model, {"x": x})
    np.testing.assert_allclose(request.infer()["b"], right[1], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(held(result), right[0], rtol=1e-5, atol=1e-6)
    assert request.copies == Copies(uploads=1, downloads=1)  # b, and x for tanh
    with pytest.raises(BlobError, match="output 'b' cannot be .* it is computed on CPU, outside"):
        request.set_blob("b", result)


def test_a_region_that_device_and_host_read(core) -> None:
    """Regions are gathered on the device for GPU, and by mapping them for CPU."""
    nodes = [("Mul", ["x", "three"], ["a"], {}), ("Tanh", ["a"], ["b"], {})]
    nodes += [("Sigmoid", ["x"], ["c"], {}), ("Add", ["b", "c"], ["d"], {})]
    nodes += [("Add", ["d", "x"], ["y"], {})]
    model = build(nodes, {"x": (1, 2, 3, 4)}, ["a", "y"], WEIGHTS)
    network = place(core.read_network(model), by_type(Tanh="CPU", Sigmoid="CPU"))
    executable = core.load_network(network, "HETERO:GPU,CPU")
    context = executable.get_context()
    request = executable.create_infer_request()
    picture = normal(1, 2, 6, 9)
    whole = context.create_blob(TensorDesc(F32, Shape(picture.shape)))
    whole.copy_from(picture)
    request.set_blob("x", whole.roi(x=2, y=1, width=4, height=3))
    right = answer(model, {"x": picture[:, :, 1:4, 2:6].copy()})
    for _ in range(2):
        for found, value in zip(request.infer().values(), right, strict=True):
            np.testing.assert_allclose(found, value, rtol=1e-5, atol=1e-6)
        assert request.copies == Copies(uploads=2, downloads=3, on_device=2)


def test_the_same_memory_for_input_and_output(core) -> None:
    """The last part reads x after y is there: y is copied into the blob in the end."""
    nodes = [
        ("Mul", ["x", "three"], ["y"], {}),
        ("Tanh", ["y"], ["b"], {}),
        ("Add", ["b", "x"], ["z"], {}),
    ]
    model = build(nodes, {"x": (2, 3)}, ["y", "z"], WEIGHTS)
    executable = core.load_network(
        place(core.read_network(model), by_type(Tanh="CPU")), "HETERO:GPU,CPU"
    )
    context = executable.get_context()
    for order in (("x", "y"), ("y", "x")):
        request = executable.create_infer_request()
        blob = context.create_blob(executable.inputs["x"].desc)
        x = normal(2, 3)
        blob.copy_from(x)
        for name in order:
            request.set_blob(name, blob)
        for _ in range(3):
            found = request.infer()
            right = answer(model, {"x": x})
            np.testing.assert_allclose(held(blob), right[0], rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(found["z"], right[1], rtol=1e-5, atol=1e-6)
            assert request.copies.on_device == 1
            x = right[0]
        request.set_blob("z", blob)
        with pytest.raises(BlobError, match="'z' shares memory with another output"):
            request.infer()


def test_blobs_that_no_part_can_use(core) -> None:
    network = place(core.read_network(there_and_back(2, 3)), by_type(Tanh="CPU"))
    executable = core.load_network(network, "HETERO:GPU,CPU")
    request = executable.create_infer_request()
    context = executable.get_context()
    with pytest.raises(BlobError, match="shape"):
        request.set_blob("x", context.create_blob(TensorDesc(F32, Shape([3, 2]))))
    blob = context.create_blob(executable.inputs["x"].desc)
    blob.release()
    with pytest.raises(BlobError, match="released"):
        request.set_blob("x", blob)
    params = {"CONTEXT_TYPE": "OCL", "OCL_CONTEXT": other_context(context)}
    other = core.create_context("GPU", params)
    with pytest.raises(BlobError, match="'x' cannot be .* read on GPU, outside of the blob's"):
        request.set_blob("x", other.create_blob(executable.inputs["x"].desc))
    check(request, there_and_back(2, 3), normal(2, 3))


def other_context(context):
    import pyopencl as ocl

    return ocl.Context(context.params["OCL_CONTEXT"].devices)


def test_no_context(core) -> None:
    network = place(core.read_network(there_and_back(2, 3)), lambda node: "CPU")
    executable = core.load_network(network, "HETERO:GPU,CPU")
    with pytest.raises(DeviceError, match="no part of 'test' on HETERO:GPU,CPU runs on a device"):
        executable.get_context()


def test_outputs_that_are_kept(core) -> None:
    model = there_and_back("n", 3, outputs=("y", "b"))
    network = place(core.read_network(model), by_type(Tanh="CPU"))
    request = core.load_network(network, "HETERO:GPU,CPU").create_infer_request()
    for name in ("y", "b"):
        request.keep_on_device(name)
    for rows in (2, 2, 4):
        x = normal(rows, 3)
        right = answer(model, {"x": x})
        assert list(request.infer({"x": x})) == ["b"], "CPU has no memory but the host's"
        np.testing.assert_allclose(held(request.get_blob("y")), right[0], rtol=1e-5, atol=1e-6)
        assert request.copies == Copies(uploads=2, downloads=1)
    request.set_blob("y", np.zeros((4, 3), "f4"))
    check(request, model, normal(3, 3))
