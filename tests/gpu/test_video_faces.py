"""The video sample: faces are found where they were put, and frames stay on the device."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from polydevice import Copies

av = pytest.importorskip("av", reason="the sample decodes video with PyAV")

SCRIPT = Path(__file__).parents[2] / "samples/video_faces.py"
# In the photograph, by eye: both eyes and the middle of the mouth.
MARKS = np.array([[133, 101], [177, 103], [153, 146]])
# A pixel of the network is 5 pixels of a frame of 640, and the network is as exact as that.
NEAR = 10
GREEN = (0, 255, 0)


@pytest.fixture(scope="module")
def sample():
    spec = importlib.util.spec_from_file_location("video_faces", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["video_faces"] = module  # dataclasses look there
    spec.loader.exec_module(module)
    yield module
    del sys.modules["video_faces"]


def run(*arguments: object, **settings: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", *map(str, arguments)]
    env = {**os.environ, **{key: str(value) for key, value in settings.items()}}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env, cwd="/")


def decoded(path: Path) -> list[np.ndarray]:
    """Frames, RGB [H, W, 3]."""
    with av.open(str(path)) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def nv12(sample, rgb: np.ndarray) -> object:
    return next(sample.nv12_frames(FakeContainer(rgb), 1))


class FakeContainer:
    """Decodes one frame."""

    def __init__(self, rgb: np.ndarray) -> None:
        self.frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(rgb), format="rgb24")

    def decode(self, video: int) -> list[object]:
        return [self.frame]


@pytest.mark.full
def test_as_a_stranger_runs_it(sample, opencl, tmp_path) -> None:
    output = tmp_path / "faces.mp4"
    done = run(SCRIPT, "--frames", 5, "-o", output)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    pattern = r"frame +(\d+) +[\d.]+ ms  x (\d+) to (\d+), y (\d+) to (\d+) \((\d+)% sure\)"
    found = np.array(
        [list(map(int, m.groups())) for m in map(re.compile(pattern).match, lines) if m]
    )
    assert found[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert (found[:, 5] > 80).all()
    assert "5 frames, 5 with faces" in done.stdout
    assert "copies in inference: 0 with the host, 0 on the device" in done.stdout
    frames = decoded(output)
    assert len(frames) == 5
    for (number, left, right, top, bottom, _), frame in zip(found, frames, strict=True):
        x, y, scale = sample.place(number)
        middle = (MARKS[:2].mean(0) + MARKS[2]) / 2 * scale + (x, y)
        np.testing.assert_allclose(((left + right) / 2, (top + bottom) / 2), middle, atol=NEAR)
        assert 80 * scale < right - left < 120 * scale
        # The outline is there, and nothing else is changed.
        centre = int(middle[0]), int(middle[1])
        for column, row in (
            (left + 2, centre[1]),
            (right - 3, centre[1]),
            (centre[0], top + 2),
            (centre[0], bottom - 3),
        ):
            np.testing.assert_allclose(frame[row, column].astype(int), GREEN, atol=60)
        drawn = sample.draw_frame(Image.open(sample.PHOTO), number)
        difference = np.abs(frame.astype(int) - drawn)
        outside = np.ones(frame.shape[:2], bool)
        outside[top - 8 : bottom + 8, left - 8 : right + 8] = False
        assert difference[outside].mean() < 6
        inside = (slice(top + 8, bottom - 8), slice(left + 8, right - 8))
        assert difference[inside].mean() < 12


def test_marks_of_a_face_and_no_copies(sample, core) -> None:
    photo = Image.open(sample.PHOTO)
    finder = sample.FaceFinder(core, "GPU", sample.WIDTH, sample.HEIGHT)
    for number in (0, 7, 20, 30):  # where the face is large enough for the network
        result = finder.process(nv12(sample, sample.draw_frame(photo, number)))
        assert result.copies == Copies(0, 0, 0)
        (face,) = result.faces
        x, y, scale = sample.place(number)
        found = face[5:].reshape(6, 2)[[0, 1, 3]]
        off = found - (MARKS * scale + (x, y))
        assert np.abs(off.mean(0)).max() < NEAR, number
        assert np.abs(off).max() < 2 * NEAR, number


def test_answers_are_those_of_openvino_after_opencv(sample, core) -> None:
    openvino = pytest.importorskip("openvino")
    frame = nv12(sample, sample.draw_frame(Image.open(sample.PHOTO), 3))
    finder = sample.FaceFinder(core, "GPU", frame.width, frame.height)
    finder.process(frame)
    ours = {}
    for name in ("525", "output"):
        with finder.request.get_blob(name).map("r") as array:
            ours[name] = array.copy()

    bgr = cv2.cvtColor(frame.to_ndarray(), cv2.COLOR_YUV2BGR_NV12)
    square = np.zeros((frame.width, frame.width, 3), np.uint8)
    square[: frame.height] = bgr
    rgb = cv2.resize(square.astype(np.float32), (128, 128))[:, :, ::-1]
    model = openvino.Core().read_model(sample.MODEL)
    given = np.ascontiguousarray((rgb / 127.5 - 1).transpose(2, 0, 1)[None])
    theirs = openvino.Core().compile_model(model, "CPU")(given)
    likely = theirs["525"][0, :, 0] > 0  # a score above one half
    assert likely.sum() >= 3
    # OpenCV's colours are up to two levels of 255 away.
    np.testing.assert_allclose(ours["525"][0, likely], theirs["525"][0, likely], atol=0.3)
    np.testing.assert_allclose(ours["output"][0, likely], theirs["output"][0, likely], atol=0.5)


@pytest.mark.parametrize("turned", [False, True], ids=["landscape", "portrait of odd size"])
def test_two_faces_then_none(sample, core, turned) -> None:
    photo = np.asarray(Image.open(sample.PHOTO))
    if turned:
        picture = np.zeros((611, 303, 3), np.uint8)  # 303 + padding is no multiple of 64
        places = [(2, 5), (1, 310)]
    else:
        picture = np.zeros((300, 620, 3), np.uint8)
        places = [(0, 0), (320, 0)]
    for x, y in places:
        picture[y : y + 300, x : x + 300] = photo
    frame = nv12(sample, picture)
    assert (frame.width, frame.height) == ((302, 610) if turned else (620, 300))
    finder = sample.FaceFinder(core, "GPU", frame.width, frame.height)
    result = finder.process(frame)
    assert len(result.faces) == 2
    assert result.faces[0, 0] >= result.faces[1, 0]
    along = 1 if turned else 0  # the axis on which the two lie apart
    faces = sorted(result.faces.tolist(), key=lambda face: face[1 + along])
    for (x, y), face in zip(places, faces, strict=True):
        found = np.reshape(face[5:], (6, 2))[[0, 1, 3]]
        assert np.abs((found - MARKS - (x, y)).mean(0)).max() < NEAR

    black = nv12(sample, np.zeros_like(picture))
    nothing = finder.process(black)
    assert nothing.faces.shape == (0, 17)
    # The same planes again: what was drawn before is gone.
    np.testing.assert_array_equal(nothing.frame.to_ndarray(), black.to_ndarray())


@pytest.mark.full
def test_a_users_video_and_what_cannot_be_read(sample, opencl, tmp_path) -> None:
    video = tmp_path / "mine.mkv"
    photo = Image.open(sample.PHOTO)
    writer = sample.Writer(video, 300, 300, 25)
    for _ in range(3):
        writer.write(av.VideoFrame.from_ndarray(np.asarray(photo), format="rgb24"))
    writer.close()
    output = tmp_path / "out.mp4"
    done = run(SCRIPT, video, "-o", output, "--frames", 2)
    assert done.returncode == 0, done.stderr
    assert "2 frames, 2 with faces" in done.stdout
    assert [frame.shape for frame in decoded(output)] == [(300, 300, 3)] * 2
    for path in (tmp_path / "none.mp4", SCRIPT):
        done = run(SCRIPT, path)
        assert done.returncode == 1
        assert f"{path} cannot be opened" in done.stderr
        assert "Traceback" not in done.stderr


def test_without_a_gpu(tmp_path) -> None:
    done = run(SCRIPT, OCL_ICD_VENDORS=tmp_path)  # a folder without drivers
    assert done.returncode == 1
    assert "there is no GPU here with OpenCL; `polydevice devices --why`" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_pyav() -> None:
    code = f"import runpy, sys; sys.modules['av'] = None; runpy.run_path({str(SCRIPT)!r})"
    done = run("-c", code)
    assert done.returncode == 1
    assert "pip install av" in done.stderr
    assert "Traceback" not in done.stderr
