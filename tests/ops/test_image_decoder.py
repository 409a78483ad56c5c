"""ImageDecoder, against images made with OpenCV."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.errors import ElementTypeError, InferenceError
from polydevice.ops.image_decoder import ImageDecoder, PixelFormat
from polydevice.shape import Dim, Shape
from polydevice.tensor import TensorDesc
from polydevice.testing.op_case import OpCase
from polydevice_cpu.implement import run
from tests.ops.check import check

cv2 = pytest.importorskip("cv2", reason="OpenCV makes the images of these tests")
pytest.importorskip("PIL", reason="ImageDecoder needs Pillow")

BGR = np.random.default_rng(33).integers(0, 256, (6, 9, 3)).astype(np.uint8)


@pytest.mark.parametrize("suffix", [".png", ".bmp", ".ppm", ".tiff"])
@pytest.mark.parametrize("form", list(PixelFormat))
def test_lossless_images(device, suffix, form):
    data = cv2.imencode(suffix, BGR)[1].reshape(-1)
    expected = {
        PixelFormat.BGR: BGR,
        PixelFormat.RGB: BGR[:, :, ::-1],
        PixelFormat.GRAYSCALE: cv2.cvtColor(BGR, cv2.COLOR_BGR2GRAY)[:, :, None],
    }[form]
    tolerance = (0, 1) if form is PixelFormat.GRAYSCALE else None  # the weights are rounded
    check(OpCase(ImageDecoder(pixel_format=form), [data], [expected], tolerance), device)


def test_jpeg(device):
    smooth = cv2.resize(BGR, (32, 24))
    data = cv2.imencode(".jpg", smooth)[1].reshape(-1)
    expected = cv2.imdecode(data, cv2.IMREAD_COLOR)
    op = ImageDecoder(pixel_format=PixelFormat.BGR)
    check(OpCase(op, [data], [expected], (0, 3)), device)


def test_refuses():
    with pytest.raises(ElementTypeError, match="u8"):
        ImageDecoder().infer([TensorDesc(ElementType.f32, Shape([3]))])
    for data in (b"", b"no image", cv2.imencode(".png", BGR)[1].tobytes()[:40]):
        with pytest.raises(InferenceError, match="cannot|can be decoded"):
            run(ImageDecoder(), [np.frombuffer(data, np.uint8)])


def test_a_small_file_of_a_huge_image_is_refused():
    header = b"P6 100000 100000 255\n"
    with pytest.raises(InferenceError, match=r"larger|can be decoded"):
        run(ImageDecoder(), [np.frombuffer(header, np.uint8)])


def test_unknown_size():
    y = ImageDecoder(pixel_format=PixelFormat.GRAYSCALE).infer(
        [TensorDesc(ElementType.u8, Shape([None]))]
    )[0]
    assert y.shape == Shape([Dim(), Dim(), 1])
