"""Remote blobs: device memory as inputs and outputs, in place."""

from __future__ import annotations

import threading

import numpy as np
import pyopencl as ocl
import pytest

from polydevice import (
    Blob,
    Copies,
    Core,
    ElementType,
    RemoteBlob,
    Shape,
    TensorDesc,
    make_shared_blob,
    make_shared_context,
)
from polydevice.errors import (
    BlobError,
    DeviceError,
    DeviceMemoryError,
    OptionValueError,
    UnknownOptionError,
)
from tests.cpu.models import answer, build
from tests.gpu.remote import FLAGS, User, affine, convolution, desc, exact

rng = np.random.default_rng(60)
SHAPE = (2, 3, 5, 7)
NOTHING = Copies(0, 0, 0)


def normal(*shape: int) -> np.ndarray:
    return exact(rng, *shape)


@pytest.fixture
def core(opencl):
    with Core() as core:
        yield core


@pytest.fixture
def user(opencl) -> User:
    return User(opencl)


def held(blob: RemoteBlob) -> np.ndarray:
    with blob.map("r") as array:
        return array.copy()


# -- contexts ---------------------------------------------------------------------------------


def test_networks_loaded_by_name_share_the_default_context(core) -> None:
    context = core.get_default_context("GPU")
    name = core.available_devices[-1]
    assert context is core.get_default_context("GPU.0") is core.get_default_context(name)
    first = core.load_network(core.read_network(affine(*SHAPE)), "GPU")
    second = core.load_network(core.read_network(affine(*SHAPE)), "GPU")
    assert first.get_context() is second.get_context() is context
    assert context.device_name == "GPU.0"
    assert context.params["CONTEXT_TYPE"] == "OCL"
    assert isinstance(context.params["OCL_CONTEXT"], ocl.Context)


@pytest.mark.parametrize("as_number", [False, True])
def test_a_users_context(core, user, as_number) -> None:
    value = user.context.int_ptr if as_number else user.context
    context = core.create_context("GPU", {"CONTEXT_TYPE": "OCL", "OCL_CONTEXT": value})
    assert context.params["OCL_CONTEXT"] == user.context
    assert "OCL_QUEUE" not in context.params
    executable = core.load_network(core.read_network(affine(*SHAPE)), context)
    assert executable.get_context() is context
    x = normal(*SHAPE)
    np.testing.assert_array_equal(executable.infer({"x": x})["y"], x * 3 + 1)
    assert make_shared_context(core, "GPU", value).shares_memory_with(context)


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ({}, OptionValueError, "CONTEXT_TYPE is missing; legal: OCL"),
        ({"CONTEXT_TYPE": "CUDA"}, OptionValueError, "CONTEXT_TYPE 'CUDA' is not legal"),
        ({"CONTEXT_TYPE": "OCL"}, OptionValueError, "needs the parameter OCL_CONTEXT"),
        ({"CONTEXT_TYPE": "OCL", "OCL_CONTEXT": "x"}, OptionValueError, "pyopencl.Context or"),
        ({"CONTEXT_TYPE": "OCL", "OCL_CONTEXT": True}, OptionValueError, "OCL_CONTEXT=True"),
        (
            {"CONTEXT_TYPE": "OCL", "OCL_CONTEXTS": 1},
            UnknownOptionError,
            "no parameter 'OCL_CONTEXTS'. Did you mean 'OCL_CONTEXT'",
        ),
    ],
)
def test_parameters_that_make_no_context(core, params, error, message) -> None:
    with pytest.raises(error, match=message):
        core.create_context("GPU", params)


@pytest.mark.parametrize("name", ["CPU", "HETERO:GPU,CPU"])
def test_devices_without_contexts_name_those_with(core, name) -> None:
    for call in (lambda: core.create_context(name, {}), lambda: core.get_default_context(name)):
        with pytest.raises(DeviceError, match=r"has no contexts .* Devices that have: GPU"):
            call()
    executable = core.load_network(core.read_network(affine(*SHAPE)), "CPU")
    with pytest.raises(DeviceError, match="a network on CPU.* has no context"):
        executable.get_context()
    blob = core.get_default_context("GPU").create_blob(executable.inputs["x"].desc)
    with pytest.raises(BlobError, match="CPU uses host memory only"):
        executable.create_infer_request().set_blob("x", blob)


def test_load_network_needs_a_name_or_a_context(core) -> None:
    with pytest.raises(DeviceError, match="a device name such as 'GPU.1', or a context"):
        core.load_network(core.read_network(affine(*SHAPE)), 3)


def test_import_into_a_context(core, user, monkeypatch) -> None:
    """Exported in one context, imported in another; blobs of that one, and nothing compiled."""
    exported = core.load_network(core.read_network(affine(3, 5)), "GPU").export()
    context = core.create_context("GPU", user.params)
    monkeypatch.setenv("POLYDEVICE_NO_COMPILE", "1")
    executable = core.import_network(exported, context)
    request = executable.create_infer_request()
    x = normal(3, 5)
    blob = context.create_blob(desc(x))
    blob.copy_from(x)
    np.testing.assert_array_equal(request.infer({"x": blob})["y"], x * 3 + 1)
    assert request.copies == Copies(downloads=1)


# -- in place ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 3, 5, 7), (2, 1, 16, 16), (1, 5, 1, 33)])
def test_nothing_crosses_to_the_host(core, shape) -> None:
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
        x = normal(*shape)
        source.copy_from(x)
        assert request.infer() == {}
        assert request.copies == NOTHING
        for blob, right in zip(results.values(), answer(model, {"x": x}), strict=True):
            np.testing.assert_allclose(held(blob), right, rtol=1e-4, atol=1e-5)
    host = executable.create_infer_request()
    host.infer({"x": x})
    assert host.copies == Copies(uploads=1, downloads=2)


def test_some_remote_and_some_not(core) -> None:
    model = convolution(*SHAPE)
    executable = core.load_network(core.read_network(model), "GPU")
    context = executable.get_context()
    request = executable.create_infer_request()
    x = normal(*SHAPE)
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


def test_blobs_are_given_to_infer_and_start_async(core) -> None:
    executable = core.load_network(core.read_network(affine(*SHAPE)), "GPU")
    x = normal(*SHAPE)
    blob = executable.get_context().create_blob(executable.inputs["x"].desc)
    blob.copy_from(x)
    request = executable.create_infer_request()
    np.testing.assert_array_equal(request.infer({"x": blob})["y"], x * 3 + 1)
    assert request.copies == Copies(downloads=1)
    request.infer({"x": x * 0})
    request.start_async({"x": blob})
    request.wait()
    np.testing.assert_array_equal(request.get_blob("y").array, x * 3 + 1)


def test_chained_networks_pass_blobs(core) -> None:
    first = core.load_network(core.read_network(convolution(*SHAPE)), "GPU")
    second = core.load_network(core.read_network(affine(2, 4, 5, 7)), "GPU")
    context = core.get_default_context("GPU")
    middle = context.create_blob(first.outputs["r"].desc)
    x = normal(*SHAPE)
    one, two = first.create_infer_request(), second.create_infer_request()
    one.set_blob("r", middle)
    two.set_blob("x", middle)
    one.infer({"x": x})
    y = two.infer()["y"]
    assert two.copies == Copies(downloads=1)
    right = answer(convolution(*SHAPE), {"x": x})[0]
    np.testing.assert_allclose(y, right * 3 + 1, rtol=1e-4, atol=1e-5)


def test_output_fed_back_as_input(core) -> None:
    """In one request the same memory is read and written: the input is copied on the device."""
    model = convolution(1, 4, 6, 5)
    executable = core.load_network(core.read_network(model), "GPU")
    request = executable.create_infer_request()
    blob = executable.get_context().create_blob(executable.inputs["x"].desc)
    x = normal(1, 4, 6, 5)
    blob.copy_from(x)
    request.set_blob("x", blob)
    request.set_blob("r", blob)
    for _ in range(3):
        request.infer()
        assert request.copies == Copies(downloads=1, on_device=1)
        x = answer(model, {"x": x})[0]
        np.testing.assert_allclose(held(blob), x, rtol=1e-3, atol=1e-4)


def test_states_that_swap_places(core) -> None:
    executable = core.load_network(core.read_network(affine(*SHAPE, factor=0.5)), "GPU")
    request = executable.create_infer_request()
    context = executable.get_context()
    one, two = (context.create_blob(executable.inputs["x"].desc) for _ in range(2))
    x = normal(*SHAPE)
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


def test_identity_constant_and_doubled_outputs(core) -> None:
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
    x = normal(3, 5)
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
def test_element_types(core, kind) -> None:
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


def test_f16_between_layers_with_f32_blobs(core) -> None:
    model = convolution(*SHAPE)
    executable = core.load_network(
        core.read_network(model), "GPU", {"INFERENCE_PRECISION_HINT": "f16"}
    )
    request = executable.create_infer_request()
    context = executable.get_context()
    x = normal(*SHAPE)
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


def test_dynamic_shapes(core) -> None:
    executable = core.load_network(core.read_network(affine("n", 3)), "GPU")
    request = executable.create_infer_request()
    context = executable.get_context()
    for rows in (2, 5, 2):
        x = normal(rows, 3)
        source, result = context.create_blob(desc(x)), context.create_blob(desc(x))
        source.copy_from(x)
        request.set_blob("x", source)
        request.set_blob("y", result)
        request.infer()
        assert request.copies == NOTHING
        np.testing.assert_array_equal(held(result), x * 3 + 1)
    request.set_blob("x", context.create_blob(desc(normal(4, 3))))
    with pytest.raises(BlobError, match=r"output 'y' has shape \[4,3\].*but is .*\[2,3\]"):
        request.infer()


def test_dynamic_batch(core) -> None:
    network = core.read_network(affine(4, 3))
    executable = core.load_network(network, "GPU", {"DYN_BATCH_ENABLED": "YES"})
    request = executable.create_infer_request()
    context = executable.get_context()
    x = normal(4, 3)
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
def test_dynamic_batch_of_regions(core, shape, layout, corner) -> None:
    context = core.get_default_context("GPU")
    x = normal(*shape)
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


# -- memory of the user -----------------------------------------------------------------------


@pytest.mark.parametrize("as_number", [False, True])
def test_the_users_buffers(core, user, as_number) -> None:
    context = core.create_context("GPU", user.params)
    executable = core.load_network(core.read_network(affine(*SHAPE)), context)
    x = normal(*SHAPE)
    source, result = user.buffer(x), user.buffer(x.nbytes + 40)
    request = executable.create_infer_request()
    for name, memory in (("x", source), ("y", result)):
        params = {
            "SHARED_MEM_TYPE": "OCL_BUFFER",
            "MEM_HANDLE": memory.int_ptr if as_number else memory,
        }
        blob = context.create_blob(desc(x), params)
        assert blob.params["MEM_HANDLE"] == memory
        assert blob.params["SHARED_MEM_TYPE"] == "OCL_BUFFER"
        assert blob.params["OCL_CONTEXT"] == user.context
        request.set_blob(name, blob)
    request.infer()
    assert request.copies == NOTHING
    np.testing.assert_array_equal(user.read(result, x), x * 3 + 1)


def test_sub_buffers(core, user, opencl) -> None:
    context = core.create_context("GPU", user.params)
    executable = core.load_network(core.read_network(affine(3, 5)), context)
    step = opencl.region_alignment_bytes
    whole = user.buffer(np.zeros(4 * step, np.uint8))
    x = normal(3, 5)
    source = whole[step : step + x.nbytes]
    result = whole[3 * step : 3 * step + x.nbytes]
    ocl.enqueue_copy(user.queue, source, x)
    request = executable.create_infer_request()
    request.set_blob("x", make_shared_blob(desc(x), context, source))
    request.set_blob("y", make_shared_blob(desc(x), context, result))
    request.infer()
    assert request.copies == NOTHING  # parts of one buffer that do not overlap
    np.testing.assert_array_equal(user.read(result, x), x * 3 + 1)
    bytes_ = user.read(whole, np.empty(4 * step, np.uint8))
    assert not bytes_[:step].any()
    assert not bytes_[3 * step + x.nbytes :].any()
    request.set_blob("y", make_shared_blob(desc(x), context, source))
    request.infer()
    assert request.copies == Copies(on_device=1)  # the input is copied away first
    np.testing.assert_array_equal(user.read(source, x), x * 3 + 1)


def test_host_memory_at_odd_addresses_is_copied_on_the_device(core, user) -> None:
    """Kernels read vectors, which must lie at their multiples."""
    context = core.create_context("GPU", user.params)
    executable = core.load_network(core.read_network(convolution(*SHAPE)), context)
    x = normal(*SHAPE)
    room = np.zeros(x.nbytes + 256, np.uint8)
    start = -room.ctypes.data % 128 + 4
    room[start : start + x.nbytes] = x.reshape(-1).view(np.uint8)
    odd = room[start : start + x.nbytes]
    memory = ocl.Buffer(user.context, FLAGS.READ_WRITE | FLAGS.USE_HOST_PTR, hostbuf=odd)
    request = executable.create_infer_request()
    request.set_blob("x", make_shared_blob(desc(x), context, memory))
    del memory, odd, room  # the blob keeps them
    found = request.infer()
    assert request.copies == Copies(downloads=2, on_device=1)
    right = answer(convolution(*SHAPE), {"x": x})
    np.testing.assert_allclose(found["r"], right[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("explicit", [False, True])
def test_shared_virtual_memory(core, user, opencl, explicit) -> None:
    if not opencl.handle.svm_capabilities:
        pytest.skip(f"{opencl.name} has no shared virtual memory")
    context = core.create_context("GPU", user.params)
    executable = core.load_network(core.read_network(affine(*SHAPE)), context)
    x = normal(*SHAPE)
    source, result = (
        ocl.SVMAllocation(user.context, x.nbytes, 0, ocl.svm_mem_flags.READ_WRITE, queue=user.queue)
        for _ in range(2)
    )
    ocl.enqueue_copy(user.queue, source, x)
    request = executable.create_infer_request()
    for name, memory in (("x", source), ("y", result)):
        params = {"MEM_HANDLE": memory}
        if explicit:
            params["SHARED_MEM_TYPE"] = "OCL_SVM"
        blob = context.create_blob(desc(x), params)
        assert blob.params["SHARED_MEM_TYPE"] == "OCL_SVM"
        assert blob.params["MEM_HANDLE"] is memory
        assert context.create_blob(desc(x), params) is blob
        request.set_blob(name, blob)
    request.infer()
    assert request.copies == NOTHING
    found = np.empty_like(x)
    ocl.enqueue_copy(user.queue, found, result)
    np.testing.assert_array_equal(found, x * 3 + 1)


def test_one_handle_is_one_blob(core, user) -> None:
    context = core.create_context("GPU", user.params)
    memory = user.buffer(240)
    as_rows = TensorDesc(ElementType.f32, Shape([6, 10]))
    as_columns = TensorDesc(ElementType.f32, Shape([10, 6]))
    blob = make_shared_blob(as_rows, context, memory)
    assert make_shared_blob(as_rows, context, memory.int_ptr) is blob
    with pytest.raises(BlobError, match=r"is BufferBlob\(f32\[6,10\].* already"):
        make_shared_blob(as_columns, context, memory)
    blob.release()
    other = make_shared_blob(as_columns, context, memory)
    assert other.shape == (10, 6)
    del other
    assert make_shared_blob(as_rows, context, memory) is not blob


def test_memory_that_makes_no_blob(core, user, opencl) -> None:
    context = core.create_context("GPU", user.params)
    wanted = TensorDesc(ElementType.f32, Shape([6, 10]))

    def refused(match: str, params: dict, what: TensorDesc = wanted) -> None:
        with pytest.raises(BlobError, match=match):
            context.create_blob(what, params)

    refused("239 bytes, but .* needs 240", {"MEM_HANDLE": user.buffer(239)})
    refused("another OpenCL context", {"MEM_HANDLE": User(opencl).buffer(240)})
    gone = user.buffer(240)
    gone.release()
    refused("no memory object .*any more", {"MEM_HANDLE": gone})
    refused("needs MEM_HANDLE", {"SHARED_MEM_TYPE": "OCL_BUFFER"})
    refused("'DX_BUFFER' is not legal; legal: OCL_BUFFER", {"SHARED_MEM_TYPE": "DX_BUFFER"})
    refused("pyopencl.MemoryObject or", {"MEM_HANDLE": "a"})
    refused("no shared virtual memory", {"SHARED_MEM_TYPE": "OCL_SVM", "MEM_HANDLE": gone})
    refused("no parameter 'MEM_HANDLES'. Did you mean 'MEM_HANDLE'", {"MEM_HANDLES": 1})
    buffer = user.buffer(240)
    refused("is a buffer, but", {"SHARED_MEM_TYPE": "OCL_IMAGE2D", "MEM_HANDLE": buffer})
    refused("VA_SURFACE needs a context", {"SHARED_MEM_TYPE": "VA_SURFACE"})
    dynamic = TensorDesc(ElementType.f32, Shape([None, 3]))
    refused("needs a static shape", {}, dynamic)
    refused("needs a static shape", {"MEM_HANDLE": buffer}, dynamic)


def test_memory_that_is_not_there(core) -> None:
    context = core.get_default_context("GPU")
    before = context.device.memory.bytes_allocated
    huge = TensorDesc(ElementType.f32, Shape([1 << 20, 1 << 20, 1 << 20]))
    with pytest.raises(DeviceMemoryError, match="cannot allocate 4611686018427387904 bytes"):
        context.create_blob(huge)
    assert context.device.memory.bytes_allocated == before


# -- what a request refuses -------------------------------------------------------------------


def test_blobs_that_do_not_fit(core, user) -> None:
    executable = core.load_network(core.read_network(affine(3, 5)), "GPU")
    context = executable.get_context()
    request = executable.create_infer_request()

    def refused(match: str, blob: RemoteBlob, name: str = "x") -> None:
        before = request.get_blob(name)
        with pytest.raises(BlobError, match=match):
            request.set_blob(name, blob)
        with pytest.raises(BlobError, match=match):
            request.infer({name: blob})
        assert request.get_blob(name) is before

    f32 = ElementType.f32
    right = TensorDesc(f32, Shape([3, 5]))
    refused(r"has shape \[3,5\], not \[5,3\]", context.create_blob(TensorDesc(f32, Shape([5, 3]))))
    refused(
        "has element type f32, not f16",
        context.create_blob(TensorDesc(ElementType.f16, Shape([3, 5]))),
    )
    other = core.create_context("GPU", user.params)
    refused("memory of another context", other.create_blob(right))
    blob = context.create_blob(right)
    request.set_blob("x", blob)
    blob.release()
    with pytest.raises(BlobError, match="is released"):
        request.infer()
    request.set_blob("x", np.zeros((3, 5), "f4"))
    refused("is released", blob)
    with pytest.raises(BlobError, match="is an output"):
        request.infer({"y": context.create_blob(right)})
    mapped = context.create_blob(right)
    with mapped.map() as _:
        refused("is mapped", mapped)
        with pytest.raises(BlobError, match="is mapped"):
            mapped.release()
    request.set_blob("x", mapped)
    with mapped.map("r") as _, pytest.raises(BlobError, match="is mapped"):
        request.infer()
    request.infer()


def test_blobs_of_another_layout(core) -> None:
    executable = core.load_network(core.read_network(affine(1, 3, 5, 7)), "GPU")
    request = executable.create_infer_request()
    what = TensorDesc(ElementType.f32, Shape([1, 5, 7, 3]))
    for blob in (executable.get_context().create_blob(what), np.zeros((1, 5, 7, 3), "f4")):
        with pytest.raises(BlobError, match=r"not \[1,5,7,3\]; its layout is NCHW, so transpose"):
            request.set_blob("x", blob)


def test_one_way_buffers(core, user) -> None:
    context = core.create_context("GPU", user.params)
    executable = core.load_network(core.read_network(affine(3, 5)), context)
    request = executable.create_infer_request()
    wanted = executable.inputs["x"].desc
    reading = make_shared_blob(wanted, context, user.buffer(60, FLAGS.READ_ONLY))
    writing = make_shared_blob(wanted, context, user.buffer(60, FLAGS.WRITE_ONLY))
    with pytest.raises(BlobError, match="input 'x' .* WRITE_ONLY for kernels"):
        request.set_blob("x", writing)
    with pytest.raises(BlobError, match="output 'y' .* READ_ONLY for kernels"):
        request.set_blob("y", reading)
    request.set_blob("x", reading)
    request.set_blob("y", writing)
    request.infer()
    closed = user.buffer(60, FLAGS.READ_WRITE | FLAGS.HOST_NO_ACCESS)
    blob = make_shared_blob(wanted, context, closed)
    with pytest.raises(BlobError, match="made with HOST_NO_ACCESS"), blob.map("r"):
        pass


# -- the host's view --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16", "u8", "i64", "boolean"])
def test_map_and_copies(core, kind) -> None:
    context = core.get_default_context("GPU")
    element_type = ElementType.parse(kind)
    what = TensorDesc(element_type, Shape([3, 5, 7]))
    one, two = context.create_blob(what), context.create_blob(what)
    data = rng.integers(0, 2, (3, 5, 7)).astype(element_type.dtype)
    with one.map("w") as array:
        assert (array.dtype, array.shape) == (element_type.dtype, (3, 5, 7))
        array[...] = data
    two.copy_from(one)
    found = np.empty_like(data)
    two.copy_to(found)
    np.testing.assert_array_equal(found, data)
    with two.map("r") as array, pytest.raises(ValueError, match="read-only"):
        array[0, 0, 0] = 0
    with two.map("rw") as array:
        array[1] = 0
    two.copy_to(one)
    data[1] = 0
    np.testing.assert_array_equal(held(one), data)


def test_empty_blobs(core) -> None:
    executable = core.load_network(core.read_network(affine("n", 3)), "GPU")
    context = executable.get_context()
    what = TensorDesc(ElementType.f32, Shape([0, 3]))
    request = executable.create_infer_request()
    for name in ("x", "y"):
        blob = context.create_blob(what)
        assert held(blob).shape == (0, 3)
        request.set_blob(name, blob)
    assert request.infer() == {}


def test_copies_on_a_queue_with_events(core, user) -> None:
    context = core.create_context("GPU", user.params)
    x = normal(64, 64)
    one, two = context.create_blob(desc(x)), context.create_blob(desc(x))
    gate = ocl.UserEvent(user.context)
    uploaded = one.copy_from(x, queue=user.queue, wait_for=[gate], blocking=False)
    moved = two.copy_from(one, queue=user.queue, wait_for=[uploaded], blocking=False)
    found = np.zeros_like(x)
    fetched = two.copy_to(found, queue=user.queue, wait_for=[moved], blocking=False)
    assert not found.any()
    gate.set_status(ocl.command_execution_status.COMPLETE)
    fetched.wait()
    np.testing.assert_array_equal(found, x)


def test_copies_that_are_refused(core, user, opencl) -> None:
    context = core.create_context("GPU", user.params)
    blob = context.create_blob(TensorDesc(ElementType.f32, Shape([3, 5])))
    for wrong in (np.zeros((5, 3), "f4"), np.zeros((3, 5), "f8")):
        with pytest.raises(BlobError, match="cannot be copied into"):
            blob.copy_from(wrong)
        with pytest.raises(BlobError, match="cannot be the target of"):
            blob.copy_to(wrong)
    with pytest.raises(BlobError, match="give an array"):
        blob.copy_from([1, 2])
    with pytest.raises(BlobError, match="C-contiguous and writable"):
        blob.copy_to(np.zeros((5, 3), "f4").T)
    elsewhere = core.get_default_context("GPU").create_blob(blob.desc)
    with pytest.raises(BlobError, match="another context"):
        blob.copy_from(elsewhere)
    x = np.zeros((3, 5), "f4")
    with pytest.raises(BlobError, match="another OpenCL context than the blob's"):
        blob.copy_from(x, queue=User(opencl).queue)
    with pytest.raises(BlobError, match="mode 'x' is not legal; legal: r, w, rw"), blob.map("x"):
        pass
    blob.release()
    for call in (lambda: blob.copy_from(x), lambda: blob.copy_to(x), lambda: blob.params):
        with pytest.raises(BlobError, match="is released"):
            call()
    with pytest.raises(BlobError, match="is released"), blob.map("r"):
        pass


def test_a_remote_blob_has_no_array(core) -> None:
    blob = core.get_default_context("GPU").create_blob(TensorDesc(ElementType.f32, Shape([3])))
    for call in (lambda: blob.array, lambda: np.asarray(blob), lambda: np.from_dlpack(blob)):
        with pytest.raises((BlobError, BufferError), match="device memory|DLPack"):
            call()


def test_many_threads(core) -> None:
    """Requests with blobs of their own, and some on the same input."""
    model = convolution(*SHAPE)
    executable = core.load_network(core.read_network(model), "GPU", {"GPU_THROUGHPUT_STREAMS": "3"})
    context = executable.get_context()
    x = normal(*SHAPE)
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


def test_infer_queue(core) -> None:
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
        x = normal(3, 5)
        blob = context.create_blob(executable.inputs["x"].desc)
        blob.copy_from(x)
        queue.start_async({"x": blob}, x)
    queue.wait_all()
    assert len(found) == 20
    for x, y in found:
        np.testing.assert_array_equal(y, x * 3 + 1)
