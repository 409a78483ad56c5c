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


def page_for_text_detection() -> dict[str, Array]:
    """A printed page for PP-OCR's detector, ImageNet's mean and deviation, [1, 3, 192, 384]."""
    page = np.repeat(skimage.data.page()[:, :, None], 3, axis=2)
    image = resized(page, 384, 192) / 255
    mean, deviation = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    return {"x": planar(((image - mean) / deviation).astype(np.float32))}


def text_line_for_recognition() -> dict[str, Array]:
    """A printed line for PP-OCR's recogniser, [1, 3, 48, 288]."""
    return {"x": planar((resized(_text_line(), 288, 48) / 255 - 0.5) / 0.5)}


def coins_for_detection() -> dict[str, Array]:
    """A photograph of coins for ddddocr's detector, 0 to 255, [1, 3, 416, 416]."""
    coins = np.repeat(skimage.data.coins()[:, :, None], 3, axis=2)
    return {"images": planar(resized(coins, 416, 416))}


def _voice(samples: int, rate: int) -> npt.NDArray[np.float32]:
    """A sung vowel: harmonics of a wavering 140 Hz, shaped by two formants, between silences."""
    time = np.arange(samples) / rate
    pitch = 140 * (1 + 0.02 * np.sin(2 * np.pi * 5 * time))
    phase = 2 * np.pi * np.cumsum(pitch) / rate
    sound = np.zeros(samples)
    for harmonic in range(1, 30):
        frequency = 140 * harmonic
        formants = sum(np.exp(-(((frequency - f) / 180) ** 2)) for f in (700, 1220))
        sound += (formants + 0.02) * np.sin(harmonic * phase)
    envelope = np.clip(np.minimum(time, time[-1] - time) / (0.2 * time[-1]), 0, 1)
    return (0.3 * envelope * sound / np.abs(sound).max()).astype(np.float32)


def voice_frame_stateful() -> dict[str, Array]:
    """576 samples at 16 kHz out of a vowel, for the voice detector that keeps its own state."""
    return {"input": _voice(16000, 16000)[None, 8000:8576]}


def voice_frame() -> dict[str, Array]:
    """The same, with the state as an input."""
    return {**voice_frame_stateful(), "state": np.zeros((2, 1, 128), np.float32)}


def voice_frame_with_rate() -> dict[str, Array]:
    """The same, for the network that takes the sampling rate too and branches on it."""
    return {**voice_frame(), "sr": np.array(16000, np.int64)}


def voice_sequence() -> dict[str, Array]:
    """Eleven overlapping frames of a vowel between silences, 576 samples each."""
    sound = _voice(11 * 512 + 64, 16000)
    frames = np.stack([sound[512 * n : 512 * n + 576] for n in range(11)])
    state = np.zeros((1, 1, 128), np.float32)
    return {"input": frames, "h": state, "c": state.copy()}


def music() -> dict[str, Array]:
    """Two seconds at 22.05 kHz of a voice, for the network that transcribes notes."""
    return {"serving_default_input_2:0": _voice(43844, 22050)[None, :, None]}


def sentences() -> dict[str, Array]:
    """ "The cat sat on the mat." and "The dog.", as BERT's tokens, the second one padded."""
    ids = [[101, 1996, 4937, 2938, 2006, 1996, 13523, 1012, 102], [101, 1996, 3899, 1012, 102]]
    mask = np.array([[1] * 9, [1] * 5 + [0] * 4], np.int64)
    padded = np.array([row + [0] * (9 - len(row)) for row in ids], np.int64)
    return {"input_ids": padded, "attention_mask": mask}
