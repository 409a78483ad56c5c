"""VA surfaces through cl_intel_va_api_media_sharing, with entry points made up here.

No machine of the tests has the extension. The made-up entry points check what they are given
against the extension's specification, and answer with images of OpenCL's own.
"""

from __future__ import annotations

import ctypes
import ctypes.util

import numpy as np
import pyopencl as ocl
import pytest

from polydevice import (
    Copies,
    ElementType,
    Shape,
    TensorDesc,
    make_shared_blob,
    make_shared_blob_nv12,
    make_shared_context,
)
from polydevice.errors import BlobError, DeviceError, OptionValueError, UnknownOptionError
from polydevice.network import Network
from polydevice.ops.arithmetic import Add
from polydevice.ops.convert import Convert
from polydevice_gpu import cl
from polydevice_gpu.blobs import va
from polydevice_gpu.cl import library
from tests.gpu.graphs import Sketch
from tests.gpu.remote import FLAGS, skip_without_images
from tests.gpu.test_remote_images import HEIGHT, WIDTH, bgr, frame, load_nv12, planes

DISPLAY = 0xD15B1A4
LUMA = TensorDesc(ElementType.u8, Shape([1, HEIGHT, WIDTH, 1]))
PIXELS = [
    ocl.ImageFormat(ocl.channel_order.R, kind)
    for kind in (ocl.channel_type.UNSIGNED_INT8, ocl.channel_type.UNSIGNED_INT16)
]
"""Of the two planes: PoCL has no images of two channels of 8 bits; one of 16 has the same bytes."""
handle, any_, uint = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint
rng = np.random.default_rng(63)


class Driver:
    """The extension on the tests' device, whose surfaces are NV12 frames."""

    def __init__(self, opencl) -> None:
        self.device = opencl.handle.int_ptr
        self.platform = opencl.platform_pointer
        self.frames: dict[int, np.ndarray] = {}
        self.images: dict[tuple[int, int], ocl.Image] = {}
        self.context: ocl.Context | None = None
        self.owned: list[int] = []
        self.log: list[str] = []
        transfer = ctypes.CFUNCTYPE(ctypes.c_int, handle, uint, any_, uint, any_, any_)
        self.functions = {
            "clGetDeviceIDsFromVA_APIMediaAdapterINTEL": ctypes.CFUNCTYPE(
                *(ctypes.c_int, handle, uint, any_, uint, uint, any_, any_)
            )(self.devices),
            "clCreateFromVA_APIMediaSurfaceINTEL": ctypes.CFUNCTYPE(
                *(handle, handle, ctypes.c_ulonglong, any_, uint, any_)
            )(self.create),
            "clEnqueueAcquireVA_APIMediaSurfacesINTEL": transfer(self.acquire),
            "clEnqueueReleaseVA_APIMediaSurfacesINTEL": transfer(self.release),
        }

    def address(self, platform: int, name: bytes) -> int | None:
        assert platform == self.platform
        function = self.functions.get(name.decode())
        return function and ctypes.cast(function, ctypes.c_void_p).value

    def devices(self, platform, kind, display, which, entries, found, count) -> int:
        assert (platform, kind, which) == (self.platform, 0x4094, 0x4096)
        if display != DISPLAY:
            return -1  # CL_DEVICE_NOT_FOUND
        if count:
            uint.from_address(count).value = 1
        if found:
            assert entries == 1
            handle.from_address(found).value = self.device
        return 0

    def create_context(self, properties, count, devices, notify, data, status) -> int:
        assert list(properties) == [0x1084, self.platform, 0x4097, DISPLAY, 0]
        assert list(devices) == [self.device]
        self.context = ocl.Context([ocl.Device.from_int_ptr(self.device)])
        pointer = self.context.int_ptr
        library.undeclared("clRetainContext")(ctypes.c_void_p(pointer))
        return pointer

    def create(self, context, flags, surface, plane, status) -> int | None:
        number = uint.from_address(surface).value
        assert context == self.context.int_ptr
        assert flags == 1
        if number not in self.frames:
            ctypes.c_int.from_address(status).value = -1098  # CL_INVALID_VA_API_MEDIA_SURFACE_INTEL
            return None
        pixels = planes(self.frames[number])[plane]
        width = pixels.shape[1] // (1 + plane)
        made = ocl.create_image(
            self.context,
            FLAGS.READ_WRITE,
            PIXELS[plane],
            shape=(width, pixels.shape[0]),
        )
        self.images[number, plane] = made
        library.undeclared("clRetainMemObject")(ctypes.c_void_p(made.int_ptr))
        ctypes.c_int.from_address(status).value = 0
        return made.int_ptr

    def acquire(self, queue, count, objects, waits, list_, event) -> int:
        """The decoder's picture becomes what the image holds."""
        return self.transfer("acquire", queue, count, objects)

    def release(self, queue, count, objects, waits, list_, event) -> int:
        return self.transfer("release", queue, count, objects)

    def transfer(self, what: str, queue: int, count: int, objects: int) -> int:
        on = ocl.CommandQueue.from_int_ptr(queue)
        for pointer in (handle * count).from_address(objects):
            (number, plane), image = next(
                item for item in self.images.items() if item[1].int_ptr == pointer
            )
            self.log.append(f"{what} {number}.{plane}")
            if what == "acquire":
                assert pointer not in self.owned
                self.owned.append(pointer)
                pixels = np.ascontiguousarray(planes(self.frames[number])[plane])
                region = (image.width, image.height)
                ocl.enqueue_copy(on, image, pixels, origin=(0, 0), region=region)
            else:
                self.owned.remove(pointer)
        return 0


@pytest.fixture
def driver(opencl, monkeypatch) -> Driver:
    for kind in PIXELS:
        skip_without_images(ocl.Context([opencl.handle]), kind)
    driver = Driver(opencl)
    opened = library.library()
    monkeypatch.setattr(va, "missing_libva", lambda: "")
    monkeypatch.setattr(opened, "clGetExtensionFunctionAddressForPlatform", driver.address)
    monkeypatch.setattr(opened, "clCreateContext", driver.create_context)
    return driver


def test_surfaces_as_nv12_input(core, driver) -> None:
    context = make_shared_context(core, "GPU", va_display=DISPLAY)
    assert context.params["CONTEXT_TYPE"] == "VA_SHARED"
    assert context.params["VA_DEVICE"] == DISPLAY
    assert context.params["OCL_CONTEXT"] == driver.context
    executable = load_nv12(core, context)
    request = executable.create_infer_request()
    result = context.create_blob(executable.outputs["y"].desc)
    request.set_blob("y", result)
    driver.frames = {4: frame(), 9: frame()}
    for number in (4, 9, 4):
        driver.frames[number] = frame()  # the decoder fills the same surfaces again and again
        blob = make_shared_blob_nv12(context, surface=number, height=HEIGHT, width=WIDTH)
        request.set_blob("image", blob)
        driver.log.clear()
        request.infer()
        assert request.copies == Copies(on_device=2)
        assert sorted(driver.log) == sorted(
            f"{what} {number}.{plane}" for what in ("acquire", "release") for plane in (0, 1)
        )
        assert not driver.owned
        with result.map("r") as found:
            assert np.abs(found - bgr(driver.frames[number])).max() <= 1


def test_surface_blobs(core, driver) -> None:
    context = core.create_context("GPU", {"CONTEXT_TYPE": "VA_SHARED", "VA_DEVICE": DISPLAY})
    driver.frames = {7: frame()}
    blob = make_shared_blob(LUMA, context, surface=7)
    assert make_shared_blob(LUMA, context, surface=7, plane=0) is blob
    params = blob.params
    assert params.pop("MEM_HANDLE") == driver.images[7, 0]
    assert params.pop("OCL_CONTEXT") == driver.context
    assert params == {
        "SHARED_MEM_TYPE": "VA_SURFACE", "VA_DEVICE": DISPLAY, "DEV_OBJECT_HANDLE": 7,
        "VA_PLANE": 0,
    }  # fmt: skip
    with blob.map("r") as found:
        assert driver.owned
        np.testing.assert_array_equal(found[0, :, :, 0], driver.frames[7][:HEIGHT])
    assert not driver.owned
    found = np.empty(blob.shape, np.uint8)
    blob.copy_to(found)
    np.testing.assert_array_equal(found[0, :, :, 0], driver.frames[7][:HEIGHT])
    assert not driver.owned
    part = blob.roi(2, 1, 4, 3, "NHWC")
    with part.map("r") as found:
        np.testing.assert_array_equal(found[0, :, :, 0], driver.frames[7][1:4, 2:6])


def sum_of_parts() -> Network:
    """Two parts of an image, 3 × 4, added."""
    s = Sketch()
    images = [s.input(name, 1, 3, 4, 1, kind=ElementType.u8) for name in "ab"]
    cast = Convert(destination_type=ElementType.f32)
    a, b = (s.add(f"cast{number}", cast, image) for number, image in enumerate(images))
    return s.network(y=s.add("sum", Add(), a, b))


def test_two_regions_of_a_surface_take_it_over_once(core, driver) -> None:
    context = make_shared_context(core, "GPU", va_display=DISPLAY)
    driver.frames = {7: frame()}
    surface = make_shared_blob(LUMA, context, surface=7)
    request = core.load_network(sum_of_parts(), context).create_infer_request()
    request.set_blob("a", surface.roi(2, 1, 4, 3, "NHWC"))
    request.set_blob("b", surface.roi(0, 2, 4, 3, "NHWC"))
    y = request.infer()["y"]
    assert driver.log == ["acquire 7.0", "release 7.0"]
    image = driver.frames[7].astype("f4")
    np.testing.assert_array_equal(y[0, :, :, 0], image[1:4, 2:6] + image[2:5, :4])


def test_surfaces_are_handed_back_when_an_inference_fails(core, driver, monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise DeviceError("the launches failed")

    context = make_shared_context(core, "GPU", va_display=DISPLAY)
    driver.frames = {7: frame()}
    surface = make_shared_blob(LUMA, context, surface=7)
    request = core.load_network(sum_of_parts(), context).create_infer_request()
    for name in "ab":
        request.set_blob(name, surface.roi(2, 1, 4, 3, "NHWC"))
    with monkeypatch.context() as patch:
        patch.setattr(cl.LaunchList, "enqueue", fail)
        with pytest.raises(DeviceError, match="the launches failed"):
            request.infer()
    assert not driver.owned
    y = request.infer()["y"]
    np.testing.assert_array_equal(y[0, :, :, 0], driver.frames[7][1:4, 2:6].astype("f4") * 2)


def test_surfaces_that_make_no_blob(core, driver) -> None:
    context = make_shared_context(core, "GPU", va_display=DISPLAY)
    driver.frames = {7: frame()}
    with pytest.raises(DeviceError, match=r"sharing plane 0 of VA surface 8: OpenCL error \(-1098"):
        make_shared_blob(LUMA, context, surface=8)
    for params, match in (
        ({}, "DEV_OBJECT_HANDLE=None is no VASurfaceID"),
        ({"DEV_OBJECT_HANDLE": -1}, "DEV_OBJECT_HANDLE=-1 is no VASurfaceID"),
        ({"DEV_OBJECT_HANDLE": 7, "VA_PLANE": 2}, "VA_PLANE=2 is not legal; legal: 0"),
    ):
        with pytest.raises(BlobError, match=match):
            context.create_blob(LUMA, {"SHARED_MEM_TYPE": "VA_SURFACE", **params})
    blob = make_shared_blob(LUMA, context, surface=7)
    with pytest.raises(BlobError, match=r"is SurfaceBlob.* already"):
        make_shared_blob(TensorDesc(ElementType.u8, Shape([HEIGHT, WIDTH])), context, surface=7)
    with pytest.raises(BlobError, match="bytes a pixel cannot be"):
        make_shared_blob(LUMA, context, surface=7, plane=1)
    assert not blob.is_released


def test_displays_that_make_no_context(core, driver) -> None:
    def refused(error: type, match: str, **params: object) -> None:
        with pytest.raises(error, match=match):
            core.create_context("GPU", {"CONTEXT_TYPE": "VA_SHARED", **params})

    refused(OptionValueError, "needs the parameter VA_DEVICE")
    refused(OptionValueError, "VA_DEVICE='x' is no VADisplay", VA_DEVICE="x")
    refused(UnknownOptionError, "no parameter 'OCL_CONTEXT'", VA_DEVICE=1, OCL_CONTEXT=1)
    refused(DeviceError, "is not the device of this VA display", VA_DEVICE=5)
    del driver.functions["clCreateFromVA_APIMediaSurfaceINTEL"]
    refused(
        DeviceError,
        "not possible on this machine: .*no cl_intel_va_api_media_sharing.*Intel's driver",
        VA_DEVICE=DISPLAY,
    )


def test_machines_without_libva_say_so(core, monkeypatch) -> None:
    find = ctypes.util.find_library
    monkeypatch.setattr(ctypes.util, "find_library", lambda n: None if n == "va" else find(n))
    with pytest.raises(
        DeviceError, match="not possible on this machine: libva is missing; install"
    ):
        core.create_context("GPU", {"CONTEXT_TYPE": "VA_SHARED", "VA_DEVICE": DISPLAY})
