r"""Classifies one image with any classification network, in the form of the well-known sample.

    python samples/hello_classification.py -m model.xml -i photo.jpg -d GPU --labels labels.txt
    cd samples && python hello_classification.py -i images/cat.jpg --rgb --mean 127 127 127 \
        --scale 128 128 128 -m models/efficientnet_lite0/efficientnet_lite0.xml \
        --labels models/efficientnet_lite0/labels.txt

The image goes in as the network's U8 input, in OpenCV's BGR order; what the network was trained on
instead is said with --mean, --scale and --rgb, and becomes part of the network.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

from polydevice import Core

log = logging.getLogger("sample")
Array = npt.NDArray[np.generic]


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-m", "--model", required=True, type=Path, help=".xml or .onnx file")
    parser.add_argument("-i", "--input", required=True, type=Path, help="image file")
    parser.add_argument("-d", "--device", default="CPU", help="device (default: CPU)")
    parser.add_argument("--labels", type=Path, help="file with one label a line")
    parser.add_argument(
        "--mean", nargs=3, type=float, default=(0, 0, 0), help="subtracted from each channel"
    )
    parser.add_argument(
        "--scale", nargs=3, type=float, default=(1, 1, 1), help="divides each channel then"
    )
    parser.add_argument("--rgb", action="store_true", help="the network takes RGB, not BGR")
    parser.add_argument("-nt", "--number_top", default=10, type=int, help="how many results")
    return parser.parse_args()


def read_image(path: Path, width: int, height: int, rgb: bool) -> Array:
    """Read an image as [1, 3, height, width], resized with a warning when it has another size."""
    image = cv2.imread(str(path))
    if image is None:
        raise SystemExit(f"{path} is not an image that OpenCV can read")
    if image.shape[:2] != (height, width):
        log.warning("Image %s is resized from %s to %s", path, image.shape[:2], (height, width))
        image = cv2.resize(image, (width, height))
    if rgb:
        image = cv2.cvtColor(image, cv2.COLOR_BGR2RGB)
    return np.ascontiguousarray(image.transpose(2, 0, 1)[None])


def print_top(path: Path, scores: Array, labels: list[str] | None, number: int) -> None:
    """Log the classes with the largest scores."""
    log.info("Image path: %s", path)
    log.info("Top %d results: ", number)
    header = "classid probability" + (" label" if labels else "")
    log.info(header)
    log.info("-" * len(header))
    for index in scores.argsort()[::-1][:number]:
        label = f" {labels[index]}" if labels else ""
        log.info("%s %s%s", f"{index:<7d}", f"{scores[index]:<11.7f}", label)
    log.info("")


def main() -> int:
    """Read, load, infer, print."""
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `… | head` ends quietly
    logging.basicConfig(
        format="[ %(levelname)s ] %(message)s", level=logging.INFO, stream=sys.stdout
    )
    arguments = parse_arguments()

    log.info("Creating Core")
    with Core() as core:
        log.info("Reading the network: %s", arguments.model)
        network = core.read_network(arguments.model)
        if len(network.inputs) != 1 or len(network.outputs) != 1:
            log.error("The sample supports networks with one input and one output only")
            return -1

        log.info("Configuring input and output blobs")
        input_name, output_name = next(iter(network.inputs)), next(iter(network.outputs))
        network.batch_size = 1
        network.inputs[input_name].precision = "U8"
        preprocess = network.inputs[input_name].preprocess
        preprocess.set_mean(arguments.mean, arguments.scale)
        network.outputs[output_name].precision = "FP32"
        shape = network.inputs[input_name].shape
        if shape is None or len(shape) != 4 or not shape.is_static or shape[1] != 3:
            log.error("The sample supports image inputs, [N, 3, H, W], only; this is %s", shape)
            return -1
        _, _, height, width = shape.static
        image = read_image(arguments.input, width, height, arguments.rgb)

        log.info("Loading the network on %s", arguments.device)
        executable = core.load_network(network, arguments.device)

        log.info("Starting inference in synchronous mode")
        scores = executable.infer({input_name: image})[output_name].flatten()

    labels = None
    if arguments.labels:
        lines = arguments.labels.read_text().splitlines()
        labels = [line.partition(",")[0].strip() for line in lines]
    print_top(arguments.input, scores, labels, arguments.number_top)
    log.info("This sample is an API example; for performance measurements use `polydevice bench`")
    return 0


if __name__ == "__main__":
    sys.exit(main())
