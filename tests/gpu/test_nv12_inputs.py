"""GPU_NV12_TWO_INPUTS: the planes of NV12 images as inputs of their own."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from polydevice.errors import UnsupportedNetworkError
from tests.cpu.models import build

HEIGHT, WIDTH = 6, 8
rng = np.random.default_rng(6)


def model(batch: int | str = 1) -> bytes:
    return build([("Relu", ["image"], ["y"], {})], {"image": [batch, 3, HEIGHT, WIDTH]}, ["y"], {})


def frames(batch: int) -> np.ndarray:
    """[N, H × 3/2, W, 1]"""
    return rng.integers(16, 236, (batch, HEIGHT * 3 // 2, WIDTH, 1), np.uint8)


def planes(frames: np.ndarray) -> dict[str, np.ndarray]:
    found = {}
    for item, frame in enumerate(frames):
        found[f"image_Y{item}"] = frame[None, :HEIGHT]
        found[f"image_UV{item}"] = frame[HEIGHT:].reshape(1, HEIGHT // 2, WIDTH // 2, 2)
    return found


def read(core, batch: int | str = 1):
    network = core.read_network(model(batch))
    network.inputs["image"].precision = "U8"
    network.inputs["image"].preprocess.color_format = "NV12"
    return network


@pytest.mark.parametrize("batch", [1, 3])
def test_planes_give_what_opencv_gives(core, batch) -> None:
    executable = core.load_network(read(core, batch), "GPU", {"GPU_NV12_TWO_INPUTS": "YES"})
    given = frames(batch)
    parts = planes(given)
    assert list(executable.inputs) == list(parts)
    for name, part in parts.items():
        port = executable.inputs[name]
        assert (port.precision, port.layout, port.sizes) == ("U8", "NHWC", part.shape)
    y = executable.infer(parts)["y"]
    right = [cv2.cvtColor(frame, cv2.COLOR_YUV2BGR_NV12) for frame in given]
    # OpenCV rounds in fixed point.
    assert np.abs(y - np.stack(right).transpose(0, 3, 1, 2)).max() <= 2
    whole = core.load_network(read(core, batch), "GPU").infer({"image": given})["y"]
    np.testing.assert_array_equal(y, whole)


def test_off_by_default_and_for_other_formats(core) -> None:
    assert list(core.load_network(read(core), "GPU").inputs) == ["image"]
    network = core.read_network(model())
    network.inputs["image"].preprocess.color_format = "RGB"
    executable = core.load_network(network, "GPU", {"GPU_NV12_TWO_INPUTS": "YES"})
    assert list(executable.inputs) == ["image"]


def test_images_of_any_size_are_resized(core) -> None:
    network = read(core)
    network.inputs["image"].preprocess.resize_algorithm = "RESIZE_BILINEAR"
    executable = core.load_network(network, "GPU", {"GPU_NV12_TWO_INPUTS": "YES"})
    big = rng.integers(16, 236, (1, 2 * HEIGHT * 3 // 2, 2 * WIDTH, 1), np.uint8)
    given = {
        "image_Y0": big[:, : 2 * HEIGHT],
        "image_UV0": big[:, 2 * HEIGHT :].reshape(1, HEIGHT, WIDTH, 2),
    }
    other = read(core)
    other.inputs["image"].preprocess.resize_algorithm = "RESIZE_BILINEAR"
    whole = core.load_network(other, "GPU").infer({"image": big})["y"]
    np.testing.assert_array_equal(executable.infer(given)["y"], whole)


def test_exported_network_keeps_its_inputs(core) -> None:
    executable = core.load_network(read(core), "GPU", {"GPU_NV12_TWO_INPUTS": "YES"})
    imported = core.import_network(executable.export(), "GPU")
    assert list(imported.inputs) == ["image_Y0", "image_UV0"]
    parts = planes(frames(1))
    np.testing.assert_array_equal(imported.infer(parts)["y"], executable.infer(parts)["y"])


def test_unknown_batch(core) -> None:
    with pytest.raises(UnsupportedNetworkError, match="needs a fixed batch"):
        core.load_network(read(core, "n"), "GPU", {"GPU_NV12_TWO_INPUTS": "YES"})
