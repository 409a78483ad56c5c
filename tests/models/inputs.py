"""Natural inputs for the models: photographs prepared as each model expects.

skimage.data holds the pictures that come with the scikit-image package; none is copied here.
"""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
import skimage.data
from PIL import Image

Array = npt.NDArray[np.generic]
ROOT = Path(__file__).parents[2]


def resized(image: Array, width: int, height: int) -> npt.NDArray[np.float32]:
    """Bilinear resize to [height, width, 3], 0 to 255."""
    picture = Image.fromarray(np.asarray(image))
    scaled = picture.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(scaled).astype(np.float32)


def planar(image: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """[H, W, C] to [1, C, H, W]."""
    return np.ascontiguousarray(image.transpose(2, 0, 1)[None])


def cat() -> dict[str, Array]:
    """The sample's photograph for EfficientNet-Lite0: centre square, RGB, (x - 127) / 128."""
    image = np.asarray(Image.open(ROOT / "samples/images/cat.jpg"))
    side, left = image.shape[0], (image.shape[1] - image.shape[0]) // 2
    return {"image": planar((resized(image[:, left : left + side], 224, 224) - 127) / 128)}


def astronaut_nhwc_bgr() -> dict[str, Array]:
    """Portrait for open_nsfw: BGR minus ImageNet's mean, [1, 224, 224, 3]."""
    image = resized(skimage.data.astronaut(), 224, 224)[None, :, :, ::-1]
    return {"input:0": np.ascontiguousarray(image - np.float32([104, 117, 123]))}


def _face() -> Array:
    return skimage.data.astronaut()[20:220, 130:330]  # the astronaut's head, 200 × 200


def _text_line() -> Array:
    line = skimage.data.page()[20:60, 20:260]  # one line of a printed page, grey
    return np.repeat(line[:, :, None], 3, axis=2)


def text_line_for_direction() -> dict[str, Array]:
    """A printed line upright and upside down for PP-OCR's direction classifier, [2, 3, 48, 192]."""
    line = (resized(_text_line(), 192, 48) / 255 - 0.5) / 0.5
    return {"x": np.concatenate([planar(line), planar(np.ascontiguousarray(line[::-1, ::-1]))])}


def portrait_for_pnet() -> dict[str, Array]:
    """A whole picture of odd size for MTCNN's proposal network, which is fully convolutional."""
    return {"input": planar((resized(skimage.data.astronaut(), 147, 131) - 127.5) / 128)}


def _crops(side: int) -> dict[str, Array]:
    """Three windows around a face, as MTCNN's later stages get them."""
    picture = skimage.data.astronaut()
    corners = [(20, 130, 200), (60, 160, 140), (0, 300, 180)]
    windows = [picture[y : y + n, x : x + n] for y, x, n in corners]
    batch = [planar((resized(window, side, side) - 127.5) / 128) for window in windows]
    return {"input": np.concatenate(batch)}


def crops_for_rnet() -> dict[str, Array]:
    return _crops(24)


def crops_for_onet() -> dict[str, Array]:
    return _crops(48)


def face_for_blazeface() -> dict[str, Array]:
    """A face, RGB, -1 to 1, [1, 3, 128, 128]."""
    return {"input": planar(resized(_face(), 128, 128) / 127.5 - 1)}


def _qr_code() -> npt.NDArray[np.uint8]:
    """A QR code as a camera sees it: each module three pixels, blurred, with a quiet zone."""
    code = cv2.QRCodeEncoder.create().encode("https://example.org/polydevice")
    code = cv2.resize(code, None, fx=3, fy=3, interpolation=cv2.INTER_NEAREST)
    code = cv2.copyMakeBorder(code, 12, 12, 12, 12, cv2.BORDER_CONSTANT, value=255)
    return np.asarray(cv2.GaussianBlur(code, (5, 5), 1.2), np.uint8)


def qr_code_for_super_resolution() -> dict[str, Array]:
    """A blurred QR code, grey, 0 to 1, [1, 1, 224, 224]."""
    code = cv2.resize(_qr_code(), (224, 224), interpolation=cv2.INTER_CUBIC)
    return {"data": code.astype(np.float32)[None, None] / 255}


def qr_code_on_a_page() -> dict[str, Array]:
    """A QR code on a printed page, grey, 0 to 1, [1, 1, 384, 384]."""
    page = cv2.resize(skimage.data.page(), (384, 384), interpolation=cv2.INTER_AREA)
    code = _qr_code()
    page[180 : 180 + code.shape[0], 120 : 120 + code.shape[1]] = code
    return {"data": page.astype(np.float32)[None, None] / 255}
