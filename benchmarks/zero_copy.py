"""What zero-copy saves: finding faces in NV12 frames, four ways from frame to answer, in one run.

    python benchmarks/zero_copy.py [-d GPU] [--size 640x480 --size 1920x1080] [--cpu-time]

The network, the frames and the device are the same (samples/video_faces.py); every way ends with
the network's answers in host memory:

* in place: the frames are on the device already, as a decoder or a kernel leaves them; blobs over
  them are set, and nothing of them crosses.
* uploaded once: a frame comes from a decoder on the host; it is copied into a blob, which is set.
* host arrays: the same frame handed to infer() as arrays.
* prepared on the host: OpenCV converts, resizes and scales it; infer() gets the small f32 image.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import av
import cv2
import numpy as np
import numpy.typing as npt
import pyopencl as ocl
from PIL import Image

from benchmarks.interleave import interleave
from polydevice import Copies, Core, ElementType, NV12Blob, Shape, TensorDesc, make_shared_context
from polydevice.executable_network import ExecutableNetwork
from polydevice.infer_request import InferRequest
from samples.video_faces import BLACK_UV, BLACK_Y, MODEL, PHOTO, draw_frame, face_network

Array = npt.NDArray[np.generic]
Answers = dict[str, Array]
FRAMES = 8  # by turns, so that no cache holds the one frame
SIDE = 128  # of the network's input
NV12 = {"GPU_NV12_TWO_INPUTS": "YES"}


@dataclass
class Frame:
    """One picture in every form that a way begins with.

    Attributes:
        whole: [H × 3/2, W], as a decoder gives it.
        y: [1, S, S, 1], square, with black below or beside the picture.
        uv: [1, S/2, S/2, 2], likewise.
    """

    whole: npt.NDArray[np.uint8]
    y: npt.NDArray[np.uint8]
    uv: npt.NDArray[np.uint8]

    @classmethod
    def drawn(cls, index: int, width: int, height: int) -> Frame:
        """Draw the sample's picture."""
        picture = Image.fromarray(draw_frame(Image.open(PHOTO), index)).resize((width, height))
        frame = av.VideoFrame.from_ndarray(np.asarray(picture), format="rgb24")
        whole = frame.reformat(format="nv12").to_ndarray()
        side = max(width, height)
        y = np.full((1, side, side, 1), BLACK_Y, np.uint8)
        uv = np.full((1, side // 2, side // 2, 2), BLACK_UV, np.uint8)
        y[0, :height, :width, 0] = whole[:height]
        uv[0, : height // 2, : width // 2] = whole[height:].reshape(height // 2, width // 2, 2)
        return cls(whole, y, uv)


class Way:
    """One way from a frame to the network's answers.

    Attributes:
        name: what the table calls it.
        request: of the network.
        uploaded: bytes a frame that cross to the device.
    """

    def __init__(
        self, name: str, request: InferRequest, run: Callable[[int], Answers], uploaded: int
    ) -> None:
        """Keep the way; `run` takes the number of a frame."""
        self.name, self.request, self.uploaded = name, request, uploaded
        self.run = run
        self._turns = itertools.cycle(range(FRAMES))

    def next(self) -> Answers:
        """Run the next frame."""
        return self.run(next(self._turns))


def remote_ways(core: Core, device: str, frames: list[Frame]) -> list[Way]:
    """Return the two ways that use blobs on the device, on a queue of ours."""
    memory = core.get_default_context(device).params["OCL_CONTEXT"]
    queue = ocl.CommandQueue(memory)
    context = make_shared_context(core, device, memory, queue=queue)
    network = core.load_network(face_network(core), context, NV12)

    def blobs(frame: Frame) -> NV12Blob:
        made = []
        for plane in (frame.y, frame.uv):
            blob = context.create_blob(TensorDesc(ElementType.u8, Shape(plane.shape)))
            blob.copy_from(plane)
            made.append(blob)
        return NV12Blob(*made)

    def request() -> InferRequest:
        made = network.create_infer_request()
        for name, port in network.outputs.items():
            made.set_blob(name, context.create_blob(port.desc))
        return made

    def answers(of: InferRequest) -> Answers:
        found = {}
        for name in network.outputs:
            with of.get_blob(name).map("r") as array:
                found[name] = array.copy()
        return found

    resident, slot = [blobs(frame) for frame in frames], blobs(frames[0])
    first, second = request(), request()
    second.set_blob("input", slot)

    def in_place(index: int) -> Answers:
        first.set_blob("input", resident[index])
        first.infer()
        return answers(first)

    def uploaded(index: int) -> Answers:
        # The events stay until the end: PyOpenCL waits where one is dropped.
        events = [
            blob.copy_from(plane, blocking=False)
            for blob, plane in ((slot.y, frames[index].y), (slot.uv, frames[index].uv))
        ]
        second.infer()
        found = answers(second)
        del events
        return found

    size = frames[0].y.nbytes + frames[0].uv.nbytes
    return [Way("in place", first, in_place, 0), Way("uploaded once", second, uploaded, size)]


def host_ways(core: Core, device: str, frames: list[Frame], width: int, height: int) -> list[Way]:
    """Return the two ways that hand over host memory."""
    taking_nv12 = core.load_network(face_network(core), device, NV12).create_infer_request()
    network = core.read_network(MODEL)
    network.batch_size = 1
    taking_f32 = core.load_network(network, device).create_infer_request()
    scale = SIDE / max(width, height)
    columns, rows = round(width * scale), round(height * scale)
    image = np.full((1, 3, SIDE, SIDE), -1, np.float32)

    def copied(answers: Answers) -> Answers:
        return {name: np.array(array) for name, array in answers.items()}

    def arrays(index: int) -> Answers:
        frame = frames[index]
        return copied(taking_nv12.infer({"input_Y0": frame.y, "input_UV0": frame.uv}))

    def prepared(index: int) -> Answers:
        rgb = cv2.cvtColor(frames[index].whole, cv2.COLOR_YUV2RGB_NV12)
        small = cv2.resize(rgb, (columns, rows)).astype(np.float32)
        image[0, :, :rows, :columns] = (small / 127.5 - 1).transpose(2, 0, 1)
        return copied(taking_f32.infer({"input": image}))

    size = frames[0].y.nbytes + frames[0].uv.nbytes
    return [
        Way("host arrays", taking_nv12, arrays, size),
        Way("prepared on the host", taking_f32, prepared, image.nbytes),
    ]


def check(ways: list[Way]) -> None:
    """Compare the answers: to the bit where the device prepared, else the likely boxes nearly."""
    for index in range(FRAMES):
        right = ways[0].run(index)
        likely = right["525"][0, :, 0] > 0
        assert likely.any(), "no face found"
        for way in ways[1:]:
            found = way.run(index)
            for name, array in found.items():
                if way.name == "prepared on the host":  # OpenCV rounds colours otherwise
                    off = np.abs(array[0, likely] - right[name][0, likely]).max()
                    assert off < 1, f"{way.name}: {name} is off by {off}"
                else:
                    assert np.array_equal(array, right[name]), f"{way.name}: {name} differs"


def kernels_ms(core: Core, device: str, frame: Frame) -> float:
    """Return how long the device's kernels take for a frame, by its own clock."""
    settings = {**NV12, "PERF_COUNT": "YES"}
    network: ExecutableNetwork = core.load_network(face_network(core), device, settings)
    request, times = network.create_infer_request(), []
    for _ in range(9):
        request.infer({"input_Y0": frame.y, "input_UV0": frame.uv})
        times.append(sum(count["real_time"] for count in request.get_perf_counts().values()))
    return float(np.median(times)) / 1e3


def measure(
    core: Core, device: str, width: int, height: int, rounds: int, clock: Callable[[], float]
) -> None:
    """Measure and print one size of frame."""
    frames = [Frame.drawn(5 * index, width, height) for index in range(FRAMES)]
    ways = remote_ways(core, device, frames) + host_ways(core, device, frames, width, height)
    check(ways)
    times = interleave({way.name: way.next for way in ways}, rounds=rounds, clock=clock)
    kernels = kernels_ms(core, device, frames[0])
    print(f"\n{width}×{height}, kernels {kernels:.2f} ms a frame by the device's clock")
    unit = "ms of CPU" if clock is time.process_time else "ms"
    print(f"{'':<22}{unit:>10}  {'copies in inference':<28}{'kB to the device':>18}")
    for way in ways:
        done: Copies = way.request.copies
        copies = f"{done.uploads} up, {done.downloads} down, {done.on_device} on it"
        print(f"{way.name:<22}{times[way.name]:>10.2f}  {copies:<28}{way.uploaded / 1e3:>18,.1f}")


def main() -> int:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-d", "--device", default="GPU")
    parser.add_argument("--size", action="append", help="WIDTHxHEIGHT, even; may be repeated")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument(
        "--cpu-time",
        action="store_true",
        help="count CPU time of all threads, steadier where a busy CPU is the device",
    )
    arguments = parser.parse_args()
    with Core() as core:
        if not any(name.startswith("GPU") for name in core.available_devices):
            parser.error("there is no GPU here; POLYDEVICE_GPU_DEVICES=cpu lets OpenCL stand in")
        clock = time.process_time if arguments.cpu_time else time.perf_counter
        print(f"{arguments.device}: {core.get_metric(arguments.device, 'FULL_DEVICE_NAME')}")
        for size in arguments.size or ["640x480", "1920x1080"]:
            width, height = map(int, size.split("x"))
            measure(core, arguments.device, width, height, arguments.rounds, clock)
    return 0


if __name__ == "__main__":
    sys.exit(main())
