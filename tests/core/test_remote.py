"""Contexts, remote, region and compound blobs as the core knows them: the same for all devices."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
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
    make_shared_context,
)
from polydevice.compound_blob import plane_blobs
from polydevice.errors import (
    BlobError,
    DeviceError,
    DeviceNameError,
    OptionValueError,
    PluginError,
)

F32 = TensorDesc(ElementType.f32, Shape([2, 3]))


@pytest.fixture
def sharing(core):
    """The core with ECHO, which has no contexts, and SHARE, which has."""
    name = "sharing_plugin"
    if name not in sys.modules:
        path = Path(__file__).with_name(f"{name}.py")
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    core.register_plugin(name, "SHARE")
    return core


# -- contexts ---------------------------------------------------------------------------------


def test_contexts_go_to_the_device(sharing) -> None:
    context = sharing.create_context("SHARE.1", {"a": 1})
    assert (context.device_name, context.params) == ("SHARE.1", {"a": 1})
    assert sharing.get_default_context("SHARE").params == {"default": True}
    assert repr(context) == "Context(SHARE.1)"


def test_devices_without_contexts(sharing, network) -> None:
    for call in (
        lambda: sharing.create_context("ECHO", {}),
        lambda: sharing.get_default_context("ECHO.0"),
        lambda: sharing.create_context("HETERO:SHARE,ECHO", {}),
    ):
        with pytest.raises(DeviceError, match=r"has no contexts .*Devices that have: .*SHARE"):
            call()
    executable = sharing.load_network(network, "ECHO")
    with pytest.raises(DeviceError, match="a network on ECHO.0 has no context"):
        executable.get_context()
    blob = sharing.get_default_context("SHARE").create_blob(F32)
    request = executable.create_infer_request()
    for name in ("x", "relu"):
        with pytest.raises(BlobError, match=rf"{name!r} of a network on ECHO.0.*host memory only"):
            request.set_blob(name, blob)
    with pytest.raises(BlobError, match="host memory only"):
        request.infer({"x": blob})


def test_a_plugin_that_fails_making_a_context(sharing) -> None:
    with pytest.raises(PluginError, match="failed while making a context: .*a bug of the plugin"):
        sharing.create_context("SHARE", {"explode": 1})


def test_loading_in_a_context(sharing, network) -> None:
    context = sharing.create_context("SHARE.1", {})
    executable = sharing.load_network(network, context)
    assert executable.get_context() is context
    assert executable.device == "SHARE.1"
    for wrong in (None, 3, object()):
        with pytest.raises(DeviceNameError, match="a device name .* or a context, is needed"):
            sharing.load_network(network, wrong)


def test_importing_in_a_context(sharing) -> None:
    context = sharing.create_context("SHARE.1", {})
    with pytest.raises(DeviceError, match="SHARE cannot import networks"):
        sharing.import_network(b"", context)
    with pytest.raises(DeviceNameError, match="a device name .* or a context, is needed"):
        sharing.import_network(b"", 3)


# -- remote blobs in requests -----------------------------------------------------------------


@pytest.fixture
def executable(sharing, network):
    return sharing.load_network(network, sharing.get_default_context("SHARE"))


def test_outputs_in_device_memory_are_not_among_the_results(executable, x) -> None:
    context = executable.get_context()
    request = executable.create_infer_request()
    source, result = context.create_blob(F32), context.create_blob(F32)
    source.copy_from(x)
    np.testing.assert_array_equal(request.infer({"x": source})["relu"], x + 1)
    request.set_blob("relu", result)
    assert request.infer() == {}
    assert request.get_blob("relu") is result
    assert request.get_blob("x") is source
    np.testing.assert_array_equal(result.content, x + 1)
    request.start_async({"x": 2 * x})
    request.wait()
    np.testing.assert_array_equal(result.content, 2 * x + 1)
    assert executable.infer({"x": x}).keys() == {"relu"}  # another request


def test_refused_blobs_leave_the_request_as_it_was(sharing, executable, x) -> None:
    request = executable.create_infer_request()
    request.infer({"x": x})
    held = request.get_blob("x")
    elsewhere = sharing.create_context("SHARE.1", {}).create_blob(F32)
    narrow = executable.get_context().create_blob(TensorDesc(ElementType.f16, Shape([2, 3])))
    flat = executable.get_context().create_blob(TensorDesc(ElementType.f32, Shape([6])))
    for blob, match in (
        (elsewhere, "another context"),
        (narrow, "has element type f32, not f16"),
        (flat, r"has shape \[2,3\], not \[6\]"),
    ):
        for call in (
            lambda b=blob: request.set_blob("x", b),
            lambda b=blob: request.infer({"x": b}),
        ):
            with pytest.raises(BlobError, match=match):
                call()
    with pytest.raises(BlobError, match="is an output; inputs: x"):
        request.infer({"relu": executable.get_context().create_blob(F32)})
    assert request.get_blob("x") is held


def test_remote_blobs_have_no_host_memory(executable) -> None:
    blob = executable.get_context().create_blob(F32)
    assert isinstance(blob, Blob)
    assert (blob.shape, blob.element_type, blob.desc) == ((2, 3), ElementType.f32, F32)
    for call in (lambda: blob.array, lambda: np.asarray(blob), blob.__dlpack__):
        with pytest.raises(BlobError, match=r"has no array; use `with blob.map\(\)"):
            call()
    with pytest.raises(BlobError, match="use blob.copy_from"):
        blob.array = np.zeros((2, 3), "f4")
    with pytest.raises(BlobError, match="needs a static shape"):
        executable.get_context().create_blob(TensorDesc(ElementType.f32, Shape([None, 3])))
    with pytest.raises(BlobError, match="needs a static shape"):
        executable.get_context().create_blob(TensorDesc(ElementType.f32))


def test_copies() -> None:
    before, after = Copies(1, 2, 3), Copies(5, 5, 5)
    assert after.since(before) == Copies(4, 3, 2)
    assert after.with_host == 10


def test_requests_of_other_devices_copy_nothing(core, network, x) -> None:
    request = core.load_network(network, "ECHO").create_infer_request()
    request.infer({"x": x})
    assert request.copies == Copies()


def test_outputs_are_kept_in_device_memory_only(executable, x) -> None:
    request = executable.create_infer_request()
    for wrong in (x, Blob(x)):
        with pytest.raises(BlobError, match="'relu' cannot be kept in .* not device memory"):
            request.keep_on_device("relu", wrong)
    with pytest.raises(BlobError, match="'x' is an input; outputs: relu"):
        request.keep_on_device("x")


# -- shorter forms ----------------------------------------------------------------------------


def test_shorter_forms(sharing) -> None:
    context = make_shared_context(sharing, "SHARE", "the user's")
    assert context.params == {"CONTEXT_TYPE": "OCL", "OCL_CONTEXT": "the user's"}
    context = make_shared_context(sharing, "SHARE", "the user's", queue="his queue")
    assert context.params["OCL_QUEUE"] == "his queue"
    display = make_shared_context(sharing, "SHARE", va_display=7)
    assert display.params == {"CONTEXT_TYPE": "VA_SHARED", "VA_DEVICE": 7}
    assert make_shared_blob(F32, context).params == {}
    assert make_shared_blob(F32, context, "memory").params == {"MEM_HANDLE": "memory"}
    surface = {"SHARED_MEM_TYPE": "VA_SURFACE", "DEV_OBJECT_HANDLE": 0, "VA_PLANE": 1}
    assert make_shared_blob(F32, context, surface=0, plane=1).params == surface
    with pytest.raises(OptionValueError, match="leave out context and queue"):
        make_shared_context(sharing, "SHARE", queue="his queue", va_display=7)
    with pytest.raises(BlobError, match="not of both"):
        make_shared_blob(F32, context, "memory", surface=0)


class Picture:
    height, width = 4, 6


def test_shorter_form_of_nv12(sharing) -> None:
    context = make_shared_context(sharing, "SHARE", 1)
    blob = make_shared_blob_nv12(context, Picture(), "uv")
    assert (blob.y.shape, blob.uv.shape) == ((1, 4, 6, 1), (1, 2, 3, 2))
    blob = make_shared_blob_nv12(context, surface=3, height=2, width=4)
    assert [plane.params["VA_PLANE"] for plane in (blob.y, blob.uv)] == [0, 1]
    with pytest.raises(BlobError, match="height=3, width=4 are no sizes"):
        make_shared_blob_nv12(context, "y", "uv", height=3, width=4)
    with pytest.raises(BlobError, match="needs both planes"):
        make_shared_blob_nv12(context, Picture())


# -- regions and compounds --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "inside"),
    [
        ("HW", np.s_[1:3, 2:7]),
        ("CHW", np.s_[:, 1:3, 2:7]),
        ("HWC", np.s_[1:3, 2:7, :]),
        ("NCHW", np.s_[:, :, 1:3, 2:7]),
        ("NHWC", np.s_[:, 1:3, 2:7, :]),
    ],
)
def test_regions(layout, inside) -> None:
    sizes = {"N": 2, "C": 3, "H": 4, "W": 8}
    whole = np.random.default_rng(5).normal(size=[sizes[letter] for letter in layout])
    region = Blob(whole).roi(2, 1, 5, 2, layout)
    assert region.shape == whole[inside].shape
    assert region.array.flags.c_contiguous
    np.testing.assert_array_equal(region.array, whole[inside])
    whole *= 2
    assert region.array is region.array
    np.testing.assert_array_equal(np.asarray(region), whole[inside])


def test_strided_views_are_inputs_only(executable) -> None:
    whole = np.arange(24, dtype="f4").reshape(4, 6)
    request = executable.create_infer_request()
    for view in (
        whole[::2, ::2],
        whole[:3, :2].T,
        whole[3:1:-1, 2:5],
        np.broadcast_to(whole[0, :3], (2, 3)),
    ):
        np.testing.assert_array_equal(request.infer({"x": RoiBlob(view)})["relu"], view + 1)
        request.set_blob("x", RoiBlob(view))
        request.start_async()
        request.wait()
        np.testing.assert_array_equal(request.get_blob("relu").array, view + 1)
    with pytest.raises(BlobError, match="output 'relu' cannot be a region"):
        request.set_blob("relu", RoiBlob(whole[::2, ::2]))
    with pytest.raises(BlobError, match="RoiBlob"):
        request.set_blob("x", whole[::2, ::2])
    with pytest.raises(BlobError, match="part of a NumPy array, not of list"):
        RoiBlob([1, 2])


@pytest.mark.parametrize(
    "region", [(0, 0, 9, 1), (8, 0, 1, 1), (-1, 0, 2, 2), (0, 3, 2, 2), (0, 0, 0, 1), (0, 0, 1, 0)]
)
def test_regions_outside(region) -> None:
    with pytest.raises(BlobError, match="not inside an image of width 8 and height 4"):
        Blob(np.zeros((4, 8))).roi(*region, layout="HW")


def test_layouts_of_regions() -> None:
    with pytest.raises(BlobError, match="layout 'NCHW' .* legal for 2 axes: HW"):
        Blob(np.zeros((4, 8))).roi(0, 0, 1, 1)
    with pytest.raises(BlobError, match="legal for 1 axes: none"):
        Blob(np.zeros(4)).roi(0, 0, 1, 1)


def nv12(height: int = 4, width: int = 6) -> NV12Blob:
    y = np.arange(height * width, dtype=np.uint8).reshape(1, height, width, 1)
    uv = np.arange(height * width // 2, dtype=np.uint8).reshape(1, height // 2, width // 2, 2)
    return NV12Blob(Blob(y), Blob(uv))


def test_nv12_regions() -> None:
    part = nv12().roi(2, 2, 4, 2)
    np.testing.assert_array_equal(part.y.array[0, :, :, 0], [[14, 15, 16, 17], [20, 21, 22, 23]])
    np.testing.assert_array_equal(part.uv.array[0], [[[8, 9], [10, 11]]])
    with pytest.raises(BlobError, match="two pixels share a colour"):
        nv12().roi(1, 2, 4, 2)
    with pytest.raises(BlobError, match="not inside"):
        nv12().roi(4, 2, 4, 2)


def test_planes_may_be_arrays() -> None:
    y, uv = nv12().y.array, nv12().uv.array
    assert NV12Blob(y, uv).y.array is y
    with pytest.raises(BlobError, match="wraps a NumPy array, not list"):
        NV12Blob(y, [1, 2])
    with pytest.raises(BlobError, match="C-contiguous"):
        NV12Blob(y[:, ::2], uv)


def test_planes_go_to_their_ports() -> None:
    one, two = nv12(), nv12()
    ports = dict.fromkeys(["image_Y0", "image_UV0", "image_Y1", "image_UV1", "z"])
    given = {"image_Y0": one.y, "image_UV0": one.uv}
    assert plane_blobs("image", one, ports) == given | {"image_Y1": one.y, "image_UV1": one.uv}
    both = plane_blobs("image", BatchedBlob([one, two]), ports)
    assert both == given | {"image_Y1": two.y, "image_UV1": two.uv}
    with pytest.raises(BlobError, match="3 NV12 images were given for 'image', whose batch is 2"):
        plane_blobs("image", BatchedBlob([one] * 3), ports)
    with pytest.raises(BlobError, match="no input 'z' that takes the planes"):
        plane_blobs("z", one, ports)
