"""Pictures on the device: images, regions, the planes of NV12."""

from __future__ import annotations

import cv2
import numpy as np
import pyopencl as ocl
import pytest

from polydevice import (
    BatchedBlob,
    Blob,
    Copies,
    ElementType,
    NV12Blob,
    RoiBlob,
    Shape,
    TensorDesc,
    make_shared_blob,
    make_shared_blob_nv12,
)
from polydevice.errors import BlobError
from tests.cpu.models import build
from tests.gpu.remote import User, desc

rng = np.random.default_rng(62)
HEIGHT, WIDTH = 6, 8


def pixels(height: int, width: int, channels: int) -> np.ndarray:
    return rng.integers(0, 256, (height, width, channels), np.uint8)


def identity(*shape: int | str) -> bytes:
    return build([("Relu", ["image"], ["y"], {})], {"image": shape}, ["y"], {})


def load(core, where, shape, *, layout="NHWC", resize=False, color="", **config):
    """A network that gives its u8 image as f32 [N, C, H, W]."""
    network = core.read_network(identity(*shape))
    info = network.inputs["image"]
    info.precision = "U8"
    info.layout = layout
    if resize:
        info.preprocess.resize_algorithm = "RESIZE_BILINEAR"
    if color:
        info.preprocess.color_format = color
    return core.load_network(network, where, config)


def planar(image: np.ndarray) -> np.ndarray:
    return image.transpose(2, 0, 1)[None].astype("f4")


# -- images -----------------------------------------------------------------------------------


@pytest.mark.parametrize("channels", [1, 4])
@pytest.mark.parametrize("how", ["inferred", "named", "number"])
def test_image_as_input(core, user, channels, how) -> None:
    context = core.create_context("GPU", user.params)
    executable = load(core, context, [1, channels, 5, 7])
    data = pixels(5, 7, channels)
    image = user.image(data)
    params = {"MEM_HANDLE": image.int_ptr if how == "number" else image}
    if how != "inferred":
        params["SHARED_MEM_TYPE"] = "OCL_IMAGE2D"
    blob = context.create_blob(executable.inputs["image"].desc, params)
    assert blob.params["SHARED_MEM_TYPE"] == "OCL_IMAGE2D"
    assert blob.params["MEM_HANDLE"] == image
    request = executable.create_infer_request()
    request.set_blob("image", blob)
    result = context.create_blob(executable.outputs["y"].desc)
    request.set_blob("y", result)
    request.infer()
    assert request.copies == Copies(on_device=1)
    with result.map("r") as found:
        np.testing.assert_array_equal(found, planar(data))


def test_image_as_output(core, user) -> None:
    network = core.read_network(identity(1, 4, 5, 7))
    network.outputs["y"].precision = "U8"
    network.outputs["y"].layout = "NHWC"
    context = core.create_context("GPU", user.params)
    executable = core.load_network(network, context)
    request = executable.create_infer_request()
    image = user.image(pixels(5, 7, 4))
    request.set_blob("y", make_shared_blob(executable.outputs["y"].desc, context, image))
    data = pixels(5, 7, 4)
    assert request.infer({"image": planar(data)}) == {}
    assert request.copies == Copies(uploads=1, on_device=1)
    found = np.empty_like(data)
    ocl.enqueue_copy(user.queue, found, image, origin=(0, 0), region=(7, 5))
    np.testing.assert_array_equal(found, data)


def test_images_map_and_copy(core, user) -> None:
    context = core.create_context("GPU", user.params)
    data = pixels(5, 7, 4)
    what = TensorDesc(ElementType.u8, Shape([1, 5, 7, 4]))
    one = make_shared_blob(what, context, user.image(data))
    with one.map("r") as array:
        np.testing.assert_array_equal(array[0], data)
    other = pixels(5, 7, 4)
    one.copy_from(other[None])
    found = np.empty_like(other[None])
    one.copy_to(found)
    np.testing.assert_array_equal(found[0], other)
    two = make_shared_blob(what, context, user.image(data))
    buffer = context.create_blob(what)
    two.copy_from(one)
    two.copy_to(buffer)
    with buffer.map("r") as array:
        np.testing.assert_array_equal(array[0], other)
    with two.map("rw") as array:
        array[0, 2] = 0
    other[2] = 0
    with two.map("r") as array:
        np.testing.assert_array_equal(array[0], other)
    two.release()
    with pytest.raises(BlobError, match="is released"):
        two.copy_from(one)


@pytest.mark.parametrize("shape", [[1, 4, 5, 7], [1, 5, 7, 3], [1, 7, 5, 4], [2, 5, 7, 4]])
def test_images_that_are_no_such_blob(core, user, shape) -> None:
    context = core.create_context("GPU", user.params)
    image = user.image(pixels(5, 7, 4))
    with pytest.raises(BlobError, match="width 7, height 5 and 4 bytes a pixel cannot be"):
        make_shared_blob(TensorDesc(ElementType.u8, Shape(shape)), context, image)


# -- regions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "layout"),
    [
        *((where, layout) for where in ("host", "buffer", "sub-buffer")
          for layout in ("NHWC", "NCHW")),
        ("image", "NHWC"),  # pixels of images are interleaved
    ],
)  # fmt: skip
@pytest.mark.parametrize("region", [(0, 0, 9, 11), (2, 3, 5, 4), (0, 7, 9, 1), (8, 0, 1, 11)])
def test_region_of_interest(core, user, opencl, layout, where, region) -> None:
    """Regions of any size, resized to the network's; as OpenVINO's OpenCV would."""
    context = core.create_context("GPU", user.params)
    channels = 4 if where == "image" else 3
    executable = load(core, context, [1, channels, HEIGHT, WIDTH], layout=layout, resize=True)
    whole = pixels(11, 9, channels)
    x, y, width, height = region
    right = cv2.resize(whole[y : y + height, x : x + width].astype("f4"), (WIDTH, HEIGHT))
    laid = np.ascontiguousarray(whole[None] if layout == "NHWC" else planar(whole).astype("u1"))
    if where == "host":
        blob = Blob(laid)
    elif where == "image":
        blob = make_shared_blob(desc(laid), context, user.image(whole))
    elif where == "buffer":
        blob = context.create_blob(desc(laid))
        blob.copy_from(laid)
    else:
        step = opencl.region_alignment_bytes
        memory = user.buffer(4 * step + laid.nbytes)[3 * step : 3 * step + laid.nbytes]
        ocl.enqueue_copy(user.queue, memory, laid)
        blob = make_shared_blob(desc(laid), context, memory)
    request = executable.create_infer_request()
    request.set_blob("image", blob.roi(x, y, width, height, layout))
    found = request.infer()["y"]
    if where == "host":
        assert request.copies == Copies(uploads=1, downloads=1)
    else:
        assert request.copies == Copies(downloads=1, on_device=1)
    np.testing.assert_allclose(found, planar(right), atol=1.01)  # whole numbers in between


def test_regions_are_live(core) -> None:
    executable = load(core, "GPU", [2, 3, 4, 5])
    whole = rng.integers(0, 256, (2, 9, 11, 3), np.uint8)
    request = executable.create_infer_request()
    region = Blob(whole).roi(3, 2, 5, 4, "NHWC")
    assert isinstance(region, RoiBlob)
    remote = executable.get_context().create_blob(desc(whole))
    remote.copy_from(whole)
    inside = np.s_[:, 2:6, 3:8]
    for blob in (region, RoiBlob(whole[inside]), remote.roi(3, 2, 5, 4, "NHWC")):
        request.set_blob("image", blob)
        for _ in range(2):
            whole[...] = rng.integers(0, 256, whole.shape, np.uint8)
            remote.copy_from(whole)
            found = request.infer()["y"]
            np.testing.assert_array_equal(found, whole[inside].transpose(0, 3, 1, 2))
    # Regions of regions, and what is written through them.
    part = remote.roi(1, 1, 9, 8, "NHWC").roi(2, 1, 5, 4, "NHWC")
    with part.map("w") as array:
        array[...] = 7
    whole[inside] = 7
    with remote.map("r") as array:
        np.testing.assert_array_equal(array, whole)


def test_regions_that_are_not_possible(core) -> None:
    context = core.get_default_context("GPU")
    array = np.zeros((1, 3, 5, 7), np.uint8)
    remote = context.create_blob(desc(array))
    for blob in (Blob(array), remote):
        for region in ((0, 0, 8, 5), (-1, 0, 2, 2), (3, 3, 2, 3), (0, 0, 0, 1)):
            with pytest.raises(BlobError, match="is not inside an image of width 7 and height 5"):
                blob.roi(*region)
        with pytest.raises(BlobError, match="legal for 4 axes: NCHW, NHWC"):
            blob.roi(0, 0, 1, 1, "HWC")
    executable = core.load_network(core.read_network(identity(1, 3, 5, 7)), "GPU")
    request = executable.create_infer_request()
    floats = np.zeros((1, 3, 9, 9), "f4")
    whole = context.create_blob(desc(floats))
    whole.copy_from(floats)
    for region in (Blob(floats).roi(0, 0, 7, 5), whole.roi(0, 0, 7, 5)):
        request.set_blob("image", region)
        with pytest.raises(BlobError, match="only inputs can"):
            request.set_blob("y", region)
    request.infer()
    for call in (region.copy_to, region.copy_from):
        with pytest.raises(BlobError, match="is a region and cannot be copied"):
            call(np.zeros((1, 3, 5, 7), "f4"))
    other = context.create_blob(region.desc)
    for call in (other.copy_to, other.copy_from):
        with pytest.raises(BlobError, match="is a region and cannot be copied"):
            call(region)
    whole.release()
    with pytest.raises(BlobError, match="is released"):
        request.infer()


def test_regions_on_cpu(core) -> None:
    executable = load(core, "CPU", [1, 3, 4, 5])
    whole = pixels(9, 11, 3)[None]
    found = executable.create_infer_request().infer({"image": Blob(whole).roi(3, 2, 5, 4, "NHWC")})
    np.testing.assert_array_equal(found["y"], planar(whole[0, 2:6, 3:8]))


# -- NV12 -------------------------------------------------------------------------------------


def frame(height: int = HEIGHT, width: int = WIDTH) -> np.ndarray:
    """[H × 3/2, W]: rows of Y, then rows of U and V by turns"""
    return rng.integers(16, 236, (height * 3 // 2, width), np.uint8)


def bgr(picture: np.ndarray) -> np.ndarray:
    return planar(cv2.cvtColor(picture, cv2.COLOR_YUV2BGR_NV12))


def load_nv12(core, where, batch: int = 1, *, resize: bool = False):
    network = core.read_network(identity(batch, 3, HEIGHT, WIDTH))
    info = network.inputs["image"]
    info.precision = "U8"
    info.preprocess.color_format = "NV12"
    if resize:
        info.preprocess.resize_algorithm = "RESIZE_BILINEAR"
    return core.load_network(network, where, {"GPU_NV12_TWO_INPUTS": "YES"})


def planes(picture: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    height = picture.shape[0] * 2 // 3
    return picture[:height], picture[height:]


def shared(user: User, context, picture: np.ndarray, luma_image: bool) -> NV12Blob:
    """The planes in memory of the user's."""
    y, uv = planes(picture)
    height, width = y.shape
    first = user.image(y[:, :, None]) if luma_image else user.buffer(np.ascontiguousarray(y))
    second = user.buffer(np.ascontiguousarray(uv))
    return make_shared_blob_nv12(context, first, second, height=height, width=width)


@pytest.mark.parametrize("luma_image", [False, True])
def test_nv12_planes_stay_on_the_device(core, user, luma_image) -> None:
    context = core.create_context("GPU", user.params)
    executable = load_nv12(core, context)
    picture = frame()
    request = executable.create_infer_request()
    blob = shared(user, context, picture, luma_image)
    request.set_blob("image", blob)
    assert request.get_blob("image_Y0") is blob.y
    assert request.get_blob("image_UV0") is blob.uv
    found = request.infer()["y"]
    assert request.copies == Copies(downloads=1, on_device=int(luma_image))
    assert np.abs(found - bgr(picture)).max() <= 1
    other = frame()
    found = request.infer({"image": shared(user, context, other, luma_image)})["y"]
    assert np.abs(found - bgr(other)).max() <= 1


def test_batches_of_nv12(core, user) -> None:
    context = core.create_context("GPU", user.params)
    executable = load_nv12(core, context, 3)
    pictures = [frame() for _ in range(3)]
    blobs = [shared(user, context, picture, luma_image=False) for picture in pictures]
    request = executable.create_infer_request()
    request.set_blob("image", BatchedBlob(blobs))
    found = request.infer()["y"]
    assert request.copies == Copies(downloads=1)
    right = np.concatenate([bgr(picture) for picture in pictures])
    assert np.abs(found - right).max() <= 1
    request.set_blob("image", BatchedBlob(blobs[:2]))  # the last one serves twice
    found = request.infer()["y"]
    assert np.abs(found - np.concatenate([right[:2], right[1:2]])).max() <= 1
    with pytest.raises(BlobError, match="4 NV12 images were given for 'image', whose batch is 3"):
        request.set_blob("image", BatchedBlob([*blobs, blobs[0]]))


def test_region_of_an_nv12_frame(core, user) -> None:
    context = core.create_context("GPU", user.params)
    executable = load_nv12(core, context, resize=True)
    picture = frame(20, 24)
    request = executable.create_infer_request()
    blob = shared(user, context, picture, luma_image=False)
    y, uv = planes(picture)
    host = NV12Blob(Blob(y.copy()[None, :, :, None]), Blob(uv.reshape(1, 10, 12, 2).copy()))
    whole = bgr(picture)[0].transpose(1, 2, 0)
    right = planar(cv2.resize(whole[6:18, 4:20], (WIDTH, HEIGHT)))
    for given, copies in ((blob, Copies(downloads=1, on_device=2)), (host, Copies(2, 1))):
        request.set_blob("image", given.roi(4, 6, 16, 12))
        found = request.infer()["y"]
        assert request.copies == copies
        assert np.abs(found - right).max() <= 2  # OpenCV rounds before it resizes
    with pytest.raises(BlobError, match="use even numbers"):
        blob.roi(3, 6, 16, 12)


def test_nv12_blobs_that_are_not_possible(core, user) -> None:
    context = core.create_context("GPU", user.params)
    y, uv = np.zeros((1, 6, 8, 1), np.uint8), np.zeros((1, 3, 4, 2), np.uint8)
    for pair in ((uv, y), (y[:, :5], uv), (y.astype("i1"), uv), (y[0], uv)):
        with pytest.raises(BlobError, match="the planes of an NV12 image are u8"):
            NV12Blob(*(Blob(np.ascontiguousarray(plane)) for plane in pair))
    with pytest.raises(BlobError, match="are no sizes of an NV12 image"):
        make_shared_blob_nv12(context, user.buffer(y), user.buffer(uv))
    with pytest.raises(BlobError, match="needs both planes"):
        make_shared_blob_nv12(context, user.buffer(y), height=6, width=8)
    with pytest.raises(BlobError, match="holds one or more NV12Blobs, not nothing"):
        BatchedBlob([])
    with pytest.raises(BlobError, match="holds one or more NV12Blobs, not Blob"):
        BatchedBlob([Blob(y)])
    blob = NV12Blob(Blob(y), Blob(uv))
    request = load(core, "GPU", [1, 3, HEIGHT, WIDTH]).create_infer_request()
    with pytest.raises(BlobError, match=r"no input 'image' that takes.*GPU_NV12_TWO_INPUTS=YES"):
        request.set_blob("image", blob)
    request = load_nv12(core, "GPU").create_infer_request()
    with pytest.raises(BlobError, match="no input 'picture' that takes"):
        request.set_blob("picture", blob)
