"""Preprocessing of inputs, on every device, against OpenCV and hand-worked answers."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from polydevice import Core
from polydevice.dtype import ElementType
from polydevice.errors import BlobError, NetworkError
from polydevice.network import Network
from polydevice.node import Node
from polydevice.ops.activation import Relu
from polydevice.ops.io import Parameter, Result
from polydevice.shape import Shape


def network(height: int = 12, width: int = 16, batch: int = 1) -> Network:
    """A network that shows what reaches it: ReLU of an image that is never negative."""
    shape = Shape((batch, 3, height, width))
    x = Node("image", Parameter(element_type=ElementType.f32, shape=shape))
    relu = Node("seen", Relu(), [x.output])
    return Network("preprocessed", [x], [Node("out", Result(), [relu.output])])


def seen(net: Network, blob: np.ndarray, device: str) -> np.ndarray:
    with Core() as core:
        request = core.load_network(net, device).create_infer_request()
        first = request.infer({"image": blob})["seen"].copy()
        np.testing.assert_array_equal(request.infer({"image": blob})["seen"], first)
        return first


def picture(height: int, width: int, channels: int = 3, seed: int = 0) -> np.ndarray:
    """A smooth random picture [H, W, C]: resizing noise would test rounding, not resizing."""
    random = np.random.default_rng(seed)
    small = random.integers(0, 256, (5, 6, channels)).astype(np.float32)
    large = cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC)
    return np.clip(large.reshape(height, width, channels), 0, 255).astype(np.uint8)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(
    ("color", "channels", "order"),
    [
        ("RAW", 3, [0, 1, 2]),
        ("BGR", 3, [0, 1, 2]),
        ("RGB", 3, [2, 1, 0]),
        ("RGBX", 4, [2, 1, 0]),
        ("BGRX", 4, [0, 1, 2]),
    ],
)
def test_color_and_layout(device, layout, color, channels, order):
    net = network()
    info = net.inputs["image"]
    info.precision, info.layout = "U8", layout
    info.preprocess.color_format = color
    pixels = np.random.default_rng(1).integers(0, 256, (1, 12, 16, channels), np.uint8)
    blob = pixels if layout == "NHWC" else np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))
    wanted = pixels[..., order].transpose(0, 3, 1, 2).astype(np.float32)
    np.testing.assert_array_equal(seen(net, blob, device), wanted)


@pytest.mark.parametrize(("height", "width"), [(12, 16), (24, 32), (31, 45), (7, 9)])
def test_bilinear_is_within_one_level_of_opencv(device, height, width):
    net = network()
    info = net.inputs["image"]
    info.precision, info.layout = "U8", "NHWC"
    info.preprocess.resize_algorithm = "RESIZE_BILINEAR"
    pixels = picture(height, width)
    wanted = cv2.resize(pixels, (16, 12), interpolation=cv2.INTER_LINEAR).transpose(2, 0, 1)
    got = seen(net, pixels[None], device)[0]
    assert np.abs(got - wanted).max() <= 1


@pytest.mark.parametrize(("height", "width"), [(24, 32), (30, 40), (31, 45), (12, 16)])
def test_area_is_within_one_level_of_opencv(device, height, width):
    net = network()
    info = net.inputs["image"]
    info.precision, info.layout = "U8", "NHWC"
    info.preprocess.resize_algorithm = "RESIZE_AREA"
    pixels = picture(height, width, seed=3)
    wanted = cv2.resize(pixels, (16, 12), interpolation=cv2.INTER_AREA).transpose(2, 0, 1)
    got = seen(net, pixels[None], device)[0]
    assert np.abs(got - wanted).max() <= 1


def test_one_network_takes_images_of_many_sizes(device):
    net = network()
    info = net.inputs["image"]
    info.precision, info.layout = "U8", "NHWC"
    info.preprocess.resize_algorithm = "RESIZE_BILINEAR"
    with Core() as core:
        request = core.load_network(net, device).create_infer_request()
        for height, width in [(20, 30), (9, 13), (20, 30)]:
            pixels = picture(height, width, seed=height)
            wanted = cv2.resize(pixels, (16, 12), interpolation=cv2.INTER_LINEAR)
            got = request.infer({"image": pixels[None]})["seen"][0]
            assert np.abs(got - wanted.transpose(2, 0, 1)).max() <= 1


@pytest.mark.parametrize(
    ("color", "conversion"),
    [("NV12", cv2.COLOR_YUV2BGR_NV12), ("I420", cv2.COLOR_YUV2BGR_I420)],
)
@pytest.mark.parametrize("batch", [1, 2])
def test_video_frames_are_within_one_level_of_opencv(device, color, conversion, batch):
    net = network(batch=batch)
    info = net.inputs["image"]
    info.precision = "U8"
    info.preprocess.color_format = color
    # Within video's legal range: below 16 OpenCV clamps Y before it converts.
    frames = np.random.default_rng(2).integers(16, 236, (batch, 18, 16, 1), np.uint8)
    wanted = np.stack([cv2.cvtColor(frame, conversion).transpose(2, 0, 1) for frame in frames])
    assert np.abs(seen(net, frames, device) - wanted).max() <= 1


def test_mean_and_scale(device):
    net = network()
    info = net.inputs["image"]
    info.precision, info.layout = "U8", "NHWC"
    info.preprocess.color_format = "RGB"
    info.preprocess.set_mean([1.0, 2.0, 3.0], scale=[2.0, 4.0, 0.5])
    pixels = np.random.default_rng(4).integers(10, 256, (1, 12, 16, 3), np.uint8)
    wanted = (pixels[..., ::-1].astype(np.float32) - [1, 2, 3]) / [2, 4, 0.5]
    np.testing.assert_allclose(
        seen(net, pixels, device), wanted.transpose(0, 3, 1, 2), rtol=1e-6, atol=1e-5
    )


def test_mean_image(device):
    net = network()
    random = np.random.default_rng(5)
    mean = random.random((3, 12, 16), np.float32)
    net.inputs["image"].preprocess.set_mean_image(mean)
    blob = random.random((1, 3, 12, 16), np.float32) + 1
    np.testing.assert_allclose(seen(net, blob, device), blob - mean, rtol=1e-6, atol=1e-6)


def test_everything_at_once(device):
    net = network()
    info = net.inputs["image"]
    info.precision = "U8"
    info.preprocess.color_format = "NV12"
    info.preprocess.resize_algorithm = "RESIZE_BILINEAR"
    info.preprocess.set_mean([-5.0] * 3, [2.0] * 3)
    y = np.clip(picture(48, 64, 1, seed=7), 16, 235)
    uv = picture(24, 32, 2, seed=8).reshape(24, 64, 1)
    frame = np.concatenate([y, uv])
    bgr = cv2.cvtColor(frame, cv2.COLOR_YUV2BGR_NV12)
    small = cv2.resize(bgr, (16, 12), interpolation=cv2.INTER_LINEAR).astype(np.float32)
    wanted = (small.transpose(2, 0, 1) + 5) / 2
    # One level from the colours, one from OpenCV's rounding after resizing; halved by the scale.
    assert np.abs(seen(net, frame[None], device)[0] - wanted).max() <= 1


def test_the_executable_network_says_what_it_takes(device):
    net = network()
    info = net.inputs["image"]
    info.precision = "U8"
    info.preprocess.color_format = "NV12"
    with Core() as core:
        executable = core.load_network(net, device)
        port = executable.inputs["image"]
        assert (port.precision, port.shape, port.layout) == ("U8", (1, 18, 16, 1), "NHWC")
        with pytest.raises(BlobError, match=r"\[1,18,16,1\]"):
            executable.infer({"image": np.zeros((1, 3, 12, 16), np.uint8)})


def test_wrong_settings_say_what_is_wrong():
    net = network()
    steps = net.inputs["image"].preprocess
    with pytest.raises(NetworkError, match="'YUYV' is not legal; use one of RAW, RGB"):
        steps.color_format = "YUYV"
    with pytest.raises(NetworkError, match="RESIZE_AREA"):
        steps.resize_algorithm = "CUBIC"
    with pytest.raises(NetworkError, match="2 means but 1 scales"):
        steps.set_mean([1.0, 2.0], [1.0])
    with pytest.raises(NetworkError, match="other numbers than 0"):
        steps.set_mean([1.0], [0.0])
    with pytest.raises(NetworkError, match="number_of_channels=0 is not possible"):
        steps.init(0)
    steps.set_mean([1.0])
    with Core() as core, pytest.raises(NetworkError, match="1 channels are set, the input has 3"):
        core.load_network(net, "CPU")
    steps.set_mean_image(np.zeros((3, 5, 5)))
    with Core() as core, pytest.raises(NetworkError, match=r"\[5, 5\].*\(12, 16\)"):
        core.load_network(net, "CPU")


def test_settings_are_written_into_files_once(tmp_path, device):
    net = network()
    info = net.inputs["image"]
    info.precision, info.layout = "U8", "NHWC"
    info.preprocess.color_format = "RGB"
    net.serialize(tmp_path / "net.xml")
    pixels = np.random.default_rng(1).integers(0, 256, (1, 12, 16, 3), np.uint8)
    with Core() as core:
        again = core.read_network(tmp_path / "net.xml")
        got = core.load_network(again, device).infer({"image": pixels})["seen"]
    np.testing.assert_array_equal(got, pixels[..., ::-1].transpose(0, 3, 1, 2))
