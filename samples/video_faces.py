"""Finds the faces in a video and draws them into it, with every frame staying on the device.

    python samples/video_faces.py [VIDEO] [-o faces.mp4] [-d GPU] [--frames 60]

Without a video it makes one: a photograph that moves over a background. What happens to a frame:

    decoder ─▶ one upload of its planes ─▶ colours, resizing, BlazeFace ─▶ find_faces, draw_faces
                                           in the network, in place        kernels of ours

All of it is enqueued on one OpenCL queue without waiting. The host waits once per frame, for the
finished picture, which it hands to the encoder. With a decoder on the GPU the upload goes away too:
its surfaces become blobs (VA_SURFACE, docs/remote-blobs.md).
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyopencl as ocl
from PIL import Image

from polydevice import Copies, Core, make_shared_blob_nv12, make_shared_context
from polydevice.network import Network
from polydevice.node import constant

try:
    import av
except ImportError as error:
    raise SystemExit(
        f"this sample reads and writes video with PyAV ({error}):  pip install av"
    ) from error

HERE = Path(__file__).parent
MODEL = HERE / "models/blazeface/blazeface.xml"
PHOTO = HERE / "images/astronaut.jpg"
ANCHORS, MOST_FACES, VALUES = 896, 16, 17  # as in video_faces.cl
BLACK_Y, BLACK_UV = 16, 128
WIDTH, HEIGHT, FRAMES = 640, 480, 60  # of the video that is made here

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


@dataclass
class Result:
    """What was found in one frame.

    Attributes:
        faces: [N, 17], best first: score; left, top, right, bottom; six points x, y (right eye,
            left eye, nose, mouth, right ear, left ear). In pixels of the frame.
        frame: with the faces drawn in; NV12.
        copies: what the inference copied.
        milliseconds: from handing over the planes until the device was done.
    """

    faces: Floats
    frame: av.VideoFrame
    copies: Copies
    milliseconds: float


def face_network(core: Core) -> Network:
    """Read BlazeFace so that it takes an NV12 image of any size."""
    network = core.read_network(MODEL)
    network.batch_size = 1
    image = network.inputs["input"]
    image.precision = "U8"
    image.preprocess.color_format = "NV12"
    image.preprocess.resize_algorithm = "RESIZE_BILINEAR"
    image.preprocess.set_mean([127.5] * 3, scale=[127.5] * 3)
    # NV12 is converted to BGR, but the network was trained on RGB: turn the first weights round,
    # [24, 3, 5, 5]. That costs nothing at inference.
    weights = next(node for node in network if node.type == "Convolution").inputs[1]
    turned = np.ascontiguousarray(weights.node.constant[:, ::-1])
    network.replace({weights: constant("bgr_weights", turned).output})
    return network


class FaceFinder:
    """The network, the kernels around it and their memory, for frames of one size."""

    def __init__(self, core: Core, device: str, width: int, height: int) -> None:
        """Load the network and allocate.

        The planes are square, with the frame at the top left and black around it, so that faces
        keep their proportions when the image is resized to the network's square.
        """
        self.width, self.height, self.side = width, height, max(width, height)
        found = core.get_default_context(device).params["OCL_CONTEXT"]
        self.queue = ocl.CommandQueue(found)
        context = make_shared_context(core, device, found, queue=self.queue)

        area = self.side**2
        self.y, self.uv = (self._buffer(found, size) for size in (area, area // 2))
        ocl.enqueue_fill_buffer(self.queue, self.y, np.uint8(BLACK_Y), 0, area)
        ocl.enqueue_fill_buffer(self.queue, self.uv, np.uint8(BLACK_UV), 0, area // 2)
        self.count, self.faces = (self._buffer(found, n) for n in (4, MOST_FACES * VALUES * 4))

        network = core.load_network(face_network(core), context, {"GPU_NV12_TWO_INPUTS": "YES"})
        self.request = network.create_infer_request()
        side = self.side
        self.planes = make_shared_blob_nv12(context, self.y, self.uv, height=side, width=side)
        self.request.set_blob("input", self.planes)
        for name, port in network.outputs.items():
            self.request.set_blob(name, context.create_blob(port.desc))
        handles = [self.request.get_blob(name).params["MEM_HANDLE"] for name in ("525", "output")]

        # Which memory the kernels use never changes, so it is set once.
        with warnings.catch_warnings():  # what a driver says of a program that it compiled
            warnings.simplefilter("ignore", ocl.CompilerWarning)
            program = ocl.Program(found, (HERE / "video_faces.cl").read_text()).build()
        self.find_faces, self.draw_faces = program.find_faces, program.draw_faces
        self.find_faces.set_args(*handles, self.count, self.faces, np.float32(side))
        self.draw_faces.set_args(self.count, self.faces, self.y, self.uv, np.int32(side))
        self.request.infer()  # compiles for this size of image, so that the first frame need not

    @staticmethod
    def _buffer(context: ocl.Context, size: int) -> ocl.Buffer:
        return ocl.Buffer(context, ocl.mem_flags.READ_WRITE, size)

    def process(self, frame: av.VideoFrame) -> Result:
        """Find the faces in an NV12 frame and draw them."""
        start = time.perf_counter()
        # pyopencl keeps the frame's memory alive as long as the events of the copies.
        copying = [
            self._upload(self.y, frame.planes[0], self.height),
            self._upload(self.uv, frame.planes[1], self.height // 2),
        ]
        self.request.infer()  # enqueues only, since all inputs and outputs are on the device
        ocl.enqueue_fill_buffer(self.queue, self.count, np.int32(0), 0, 4)
        ocl.enqueue_nd_range_kernel(self.queue, self.find_faces, (ANCHORS,), None)
        blocks = (self.width // 2, self.height // 2)
        ocl.enqueue_nd_range_kernel(self.queue, self.draw_faces, blocks, None)
        self.queue.finish()  # the only time that the host waits for the device
        milliseconds = (time.perf_counter() - start) * 1e3
        del copying
        return Result(self._read_faces(), self._read_frame(), self.request.copies, milliseconds)

    def _upload(self, buffer: ocl.Buffer, plane: av.video.plane.VideoPlane, rows: int) -> ocl.Event:
        """Copy a plane of the decoder's, whose rows may be padded, into rows of `side` bytes."""
        return ocl.enqueue_copy(
            self.queue,
            buffer,
            np.frombuffer(plane, np.uint8),
            buffer_origin=(0, 0, 0),
            host_origin=(0, 0, 0),
            region=(self.width, rows, 1),
            buffer_pitches=(self.side,),
            host_pitches=(plane.line_size,),
            is_blocking=False,
        )

    def _read_faces(self) -> Floats:
        count, faces = np.empty(1, np.int32), np.empty((MOST_FACES, VALUES), np.float32)
        ocl.enqueue_copy(self.queue, count, self.count)
        ocl.enqueue_copy(self.queue, faces, self.faces)
        found = faces[: min(int(count[0]), MOST_FACES)]
        return found[found[:, 0].argsort()[::-1]]

    def _read_frame(self) -> av.VideoFrame:
        """Show the planes to the host, for the encoder."""
        with self.planes.y.map("r") as y, self.planes.uv.map("r") as uv:
            luma = y[0, : self.height, : self.width, 0]
            chroma = uv[0, : self.height // 2, : self.width // 2].reshape(-1, self.width)
            return av.VideoFrame.from_ndarray(np.concatenate([luma, chroma]), format="nv12")


def place(index: int, count: int = FRAMES) -> tuple[float, float, float]:
    """Say where the photograph lies in a frame of the video that is made here.

    Returns:
        Left and top edge in pixels, and the scale.
    """
    turn = 2 * np.pi * index / count
    scale = 1.2 + 0.2 * np.sin(turn)
    return 140 + 120 * np.cos(turn), 60 + 50 * np.sin(2 * turn), scale


def draw_frame(photo: Image.Image, index: int) -> Bytes:
    """Return a frame, RGB [HEIGHT, WIDTH, 3]: stripes that move, and the photograph on them."""
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    wave = 100 + 60 * np.sin((columns + 2 * rows + 8 * index) / 40)
    stripes = np.stack([wave * 0.6, wave, wave * 0.8], axis=2).astype(np.uint8)
    left, top, scale = place(index)
    # Maps a pixel of the frame to the photograph's, at fractions of pixels.
    inverse = (1 / scale, 0, -left / scale, 0, 1 / scale, -top / scale)
    layer = photo.convert("RGBA").transform(
        (WIDTH, HEIGHT), Image.Transform.AFFINE, inverse, Image.Resampling.BILINEAR
    )
    frame = Image.fromarray(stripes)
    frame.paste(layer, mask=layer)
    return np.asarray(frame)


class Writer:
    """An MP4 file: H.264 where FFmpeg was built with it, else MPEG-4."""

    def __init__(self, path: Path, width: int, height: int, rate: object) -> None:
        """Open the file."""
        self._container = av.open(str(path), "w")
        codec = "libx264" if "libx264" in av.codecs_available else "mpeg4"
        self._stream = self._container.add_stream(codec, rate=rate)
        self._stream.width, self._stream.height = width, height
        self._stream.pix_fmt = "yuv420p"
        self._stream.bit_rate = 4_000_000

    def write(self, frame: av.VideoFrame) -> None:
        """Add a frame."""
        self._container.mux(self._stream.encode(frame.reformat(format="yuv420p")))

    def close(self) -> None:
        """Write what is still to come."""
        self._container.mux(self._stream.encode(None))
        self._container.close()


def make_video(path: Path, frames: int) -> None:
    """Write the video of the moving photograph."""
    photo = Image.open(PHOTO)
    writer = Writer(path, WIDTH, HEIGHT, 30)
    for index in range(frames):
        writer.write(av.VideoFrame.from_ndarray(draw_frame(photo, index), format="rgb24"))
    writer.close()


def nv12_frames(container: av.container.InputContainer, limit: int) -> Iterator[av.VideoFrame]:
    """Decode frames as the network takes them: NV12 in BT.601's video range, of one even size."""
    width = height = 0
    for frame in itertools.islice(container.decode(video=0), limit):
        width, height = width or frame.width // 2 * 2, height or frame.height // 2 * 2
        yield frame.reformat(width, height, "nv12", dst_colorspace="ITU601", dst_color_range="MPEG")


def report(number: int, result: Result) -> None:
    """Print what was found in a frame."""
    faces = [
        f"x {face[1]:.0f} to {face[3]:.0f}, y {face[2]:.0f} to {face[4]:.0f} ({face[0]:.0%} sure)"
        for face in result.faces
    ]
    found = "; ".join(faces) or "no face"
    print(f"frame {number:3d}  {result.milliseconds:6.1f} ms  {found}")


def find_in_video(core: Core, device: str, video: Path, output: Path, limit: int) -> None:
    """Decode, find, draw, encode; print what was found and what it took."""
    try:
        container = av.open(str(video))
    except av.FFmpegError as error:
        raise SystemExit(f"{video} cannot be opened: {error}") from error
    with container:
        frames = nv12_frames(container, limit) if container.streams.video else iter(())
        first = next(frames, None)
        if first is None:
            raise SystemExit(f"{video} has no pictures")
        print(f"{device}: {core.get_metric(device, 'FULL_DEVICE_NAME')}")
        finder = FaceFinder(core, device, first.width, first.height)
        print(f"{video.name}: {first.width}×{first.height}")
        rate = container.streams.video[0].average_rate or 30
        writer = Writer(output, first.width, first.height, rate)
        times, with_faces, with_host, on_device = [], 0, 0, 0
        for number, frame in enumerate(itertools.chain([first], frames)):
            result = finder.process(frame)
            report(number, result)
            writer.write(result.frame)
            times.append(result.milliseconds)
            with_faces += len(result.faces) > 0
            with_host += result.copies.with_host
            on_device += result.copies.on_device
        writer.close()
    print(f"{len(times)} frames, {with_faces} with faces, median {statistics.median(times):.1f} ms")
    print(f"copies in inference: {with_host} with the host, {on_device} on the device")
    print(f"wrote {output}")


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("video", nargs="?", type=Path, help="file (default: makes a short video)")
    parser.add_argument("-o", "--output", type=Path, default=Path("faces.mp4"), help="MP4 file")
    parser.add_argument("-d", "--device", default="GPU", help="GPU, or GPU.1 for the second one")
    parser.add_argument("--frames", type=int, default=FRAMES, help="most frames to process")
    arguments = parser.parse_args()
    if arguments.frames < 1:
        parser.error(f"--frames {arguments.frames}: give 1 or more")

    with Core() as core, tempfile.TemporaryDirectory() as folder:
        if not any(name.startswith("GPU") for name in core.available_devices):
            raise SystemExit(
                "there is no GPU here with OpenCL; `polydevice devices --why` says what was looked "
                "for. POLYDEVICE_GPU_DEVICES=cpu lets OpenCL on the CPU stand in for one"
            )
        video = arguments.video
        if video is None:
            video = Path(folder) / "moving_photograph.mp4"
            make_video(video, arguments.frames)
        find_in_video(core, arguments.device, video, arguments.output, arguments.frames)


if __name__ == "__main__":
    main()
