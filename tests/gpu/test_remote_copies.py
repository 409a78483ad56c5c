"""What the host sees of remote blobs: maps, and copies with events."""

from __future__ import annotations

import numpy as np
import pyopencl as ocl
import pytest

from polydevice import ElementType, Shape, TensorDesc
from polydevice.errors import BlobError
from tests.gpu.remote import User, affine, desc, exact, held
from tests.gpu.strict import refuse_empty_transfers


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16", "u8", "i64", "boolean"])
def test_map_and_copies(core, kind, rng) -> None:
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


@pytest.mark.parametrize("blocking", [True, False])
def test_copies_of_nothing_are_events_and_wait(core, user, monkeypatch, blocking) -> None:
    refused = refuse_empty_transfers(monkeypatch)
    context = core.create_context("GPU", user.params)
    what = TensorDesc(ElementType.f32, Shape([0, 3]))
    one, two = context.create_blob(what), context.create_blob(what)
    nothing = np.empty((0, 3), np.float32)
    gate = ocl.UserEvent(user.context)
    status = ocl.command_execution_status
    gate.set_status(status.COMPLETE)
    for copy in (
        lambda **how: one.copy_from(nothing, **how),
        lambda **how: two.copy_from(one, **how),
        lambda **how: two.copy_to(nothing, **how),
    ):
        event = copy(queue=user.queue, wait_for=[gate], blocking=blocking)
        event.wait()
        assert event.command_execution_status == status.COMPLETE
    assert not refused
    assert held(two).shape == (0, 3)


def test_copies_on_a_queue_with_events(core, user, rng) -> None:
    context = core.create_context("GPU", user.params)
    x = exact(rng, 64, 64)
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
