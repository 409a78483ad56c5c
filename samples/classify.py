"""Classifies a photograph on every device and prints the five likeliest labels.

    python samples/classify.py [IMAGE] [-d CPU -d GPU]

Uses the EfficientNet-Lite0 network and the photograph that lie beside this file.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from polydevice import Core

HERE = Path(__file__).parent
MODEL = HERE / "models/efficientnet_lite0/efficientnet_lite0.xml"
LABELS = HERE / "models/efficientnet_lite0/labels.txt"
RUNS = 10


def prepare(path: Path) -> npt.NDArray[np.float32]:
    """Cut the centre square out and scale it as the network was trained: [1, 3, 224, 224]."""
    picture = Image.open(path).convert("RGB")
    side = min(picture.size)
    left, top = (picture.width - side) // 2, (picture.height - side) // 2
    square = picture.crop((left, top, left + side, top + side))
    pixels = np.asarray(square.resize((224, 224), Image.Resampling.BILINEAR), np.float32)
    return np.ascontiguousarray(((pixels - 127) / 128).transpose(2, 0, 1)[None])


def softmax(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Turn the network's outputs into probabilities."""
    powers = np.exp(logits - logits.max())
    return np.asarray(powers / powers.sum())


def classify(core: Core, device: str, image: npt.NDArray[np.float32], labels: list[str]) -> None:
    """Load the network on a device, run it, and print what it sees."""
    start = time.perf_counter()
    network = core.read_network(MODEL)
    network.batch_size = 1  # known ahead, so that loading can prepare everything
    request = core.load_network(network, device).create_infer_request()
    load_ms = (time.perf_counter() - start) * 1e3

    request.infer({"image": image})
    first_ms = request.latency
    latencies = []
    for _ in range(RUNS):
        outputs = request.infer({"image": image})
        latencies.append(request.latency)
    probabilities = softmax(outputs["logits"][0])

    print(f"\n{device}: {core.get_metric(device, 'FULL_DEVICE_NAME')}")
    for index in probabilities.argsort()[::-1][:5]:
        print(f"  {probabilities[index]:6.1%}  {labels[index]}")
    print(
        f"  load {load_ms:.0f} ms, first inference {first_ms:.1f} ms, "
        f"then {statistics.median(latencies):.1f} ms (median of {RUNS})"
    )


def main() -> None:
    """Read the arguments and classify on each device."""
    parser = argparse.ArgumentParser(description="Classify a photograph on every device.")
    parser.add_argument("image", nargs="?", type=Path, default=HERE / "images/cat.jpg")
    parser.add_argument("-d", "--device", action="append", help="device (default: all of them)")
    arguments = parser.parse_args()

    image = prepare(arguments.image)
    labels = [line.partition(",")[0] for line in LABELS.read_text().splitlines()]
    with Core() as core:
        for device in arguments.device or core.available_devices:
            classify(core, device, image, labels)


if __name__ == "__main__":
    main()
