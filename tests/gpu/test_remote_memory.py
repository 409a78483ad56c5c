"""Memory of the user's as remote blobs, and blobs that a request refuses."""

from __future__ import annotations

import numpy as np
import pyopencl as ocl
import pytest

from polydevice import Copies, ElementType, RemoteBlob, Shape, TensorDesc, make_shared_blob
from polydevice.errors import BlobError, DeviceMemoryError
from tests.cpu.models import answer
from tests.gpu.remote import FLAGS, NOTHING, User, affine, convolution, desc, exact

SHAPE = (2, 3, 5, 7)


@pytest.mark.parametrize("as_number", [False, True])
def test_the_users_buffers(core, user, as_number, rng) -> None:
    context = core.create_context("GPU", user.params)
    executable = core.load_network(core.read_network(affine(*SHAPE)), context)
    x = exact(rng, *SHAPE)
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


def test_sub_buffers(core, user, opencl, rng) -> None:
    context = core.create_context("GPU", user.params)
    executable = core.load_network(core.read_network(affine(3, 5)), context)
    step = opencl.region_alignment_bytes
    whole = user.buffer(np.zeros(4 * step, np.uint8))
    x = exact(rng, 3, 5)
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


def test_host_memory_at_odd_addresses_is_copied_on_the_device(core, user, rng) -> None:
    """Kernels read vectors, which must lie at their multiples."""
    context = core.create_context("GPU", user.params)
    executable = core.load_network(core.read_network(convolution(*SHAPE)), context)
    x = exact(rng, *SHAPE)
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
def test_shared_virtual_memory(core, user, opencl, explicit, rng) -> None:
    if not opencl.handle.svm_capabilities:
        pytest.skip(f"{opencl.name} has no shared virtual memory")
    context = core.create_context("GPU", user.params)
    executable = core.load_network(core.read_network(affine(*SHAPE)), context)
    x = exact(rng, *SHAPE)
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
