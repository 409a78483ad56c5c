"""The samples do what they say, on every device."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "samples/models/efficientnet_lite0/efficientnet_lite0.xml"
LABELS = MODEL.with_name("labels.txt")
CAT = ROOT / "samples/images/cat.jpg"
CATS = {"tabby", "tiger cat", "Egyptian cat"}


def run(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, check=False, cwd="/"
    )


def test_classify(device: str) -> None:
    done = run(ROOT / "samples/classify.py", "-d", device)
    assert done.returncode == 0, done.stderr
    heading, *rows, times = done.stdout.strip().splitlines()
    assert heading.startswith(f"{device}: ")
    assert len(rows) == 5
    assert {row.split("%  ")[1] for row in rows[:3]} == CATS
    assert re.search(r"load \d+ ms, first inference [\d.]+ ms, then [\d.]+ ms", times)


def test_hello_query_device_prints_every_metric_and_key() -> None:
    done = run(ROOT / "samples/hello_query_device.py")
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if "oneDNN library" not in line]
    assert all(line.startswith("[ INFO ] ") for line in lines)
    text = "\n".join(line.removeprefix("[ INFO ] ") for line in lines)
    assert "\nAvailable devices:\nCPU :\n\tSUPPORTED_METRICS:\n" in text
    assert re.search(r"\n\t\tFULL_DEVICE_NAME: \S", text)
    assert re.search(r"\n\t\tRANGE_FOR_ASYNC_INFER_REQUESTS: \d+, \d+, \d+\n", text)
    assert re.search(r"\n\n\tSUPPORTED_CONFIG_KEYS \(default values\):\n\t\t[A-Z]\w+: ", text)
    assert "\n\t\tCPU_THROUGHPUT_STREAMS: " in text
    assert "UNAVAILABLE" not in text


def test_hello_query_device_takes_no_arguments() -> None:
    done = run(ROOT / "samples/hello_query_device.py", "GPU")
    assert done.returncode == 1
    assert done.stderr.startswith("Usage: ")


@pytest.fixture(scope="module")
def ready_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """EfficientNet with its scaling inside, from BGR bytes to probabilities, made by OpenVINO."""
    openvino = pytest.importorskip("openvino", reason="OpenVINO puts the scaling into the model")
    from openvino import opset8
    from openvino.preprocess import ColorFormat, PrePostProcessor

    model = openvino.Core().read_model(MODEL)
    model.reshape([1, 3, 224, 224])
    steps = PrePostProcessor(model)
    steps.input().tensor().set_layout(openvino.Layout("NCHW"))
    steps.input().tensor().set_color_format(ColorFormat.BGR)
    steps.input().model().set_layout(openvino.Layout("NCHW"))
    steps.input().preprocess().convert_color(ColorFormat.RGB).mean(127.0).scale(128.0)
    model = steps.build()
    (result,) = model.get_results()
    probabilities = opset8.softmax(result.input_value(0), 1)
    model = openvino.Model([opset8.result(probabilities)], model.get_parameters(), "ready")
    path = tmp_path_factory.mktemp("model") / "ready.xml"
    openvino.save_model(model, path, compress_to_fp16=False)
    return path


def test_hello_classification(ready_model: Path, device: str) -> None:
    script = ROOT / "samples/hello_classification.py"
    arguments = ("-m", ready_model, "-i", CAT, "-d", device, "--labels", LABELS, "-nt", 3)
    done = run(script, *arguments)
    assert done.returncode == 0, done.stderr
    lines = [line.partition("] ")[2] for line in done.stdout.splitlines()]
    assert "[ WARNING ]" in done.stdout  # the photograph has another size than the network
    heading = lines.index("classid probability label")
    assert set(lines[heading + 1]) == {"-"}
    rows = [line.split(maxsplit=2) for line in lines[heading + 2 : heading + 5]]
    assert {label for _, _, label in rows} <= CATS | {"lynx"}
    probabilities = np.array([float(p) for _, p, _ in rows])
    assert (np.diff(probabilities) <= 0).all()
    assert all(re.fullmatch(r"\d\.\d{7}", p) for _, p, _ in rows)


@pytest.mark.full(but_on="CPU")
def test_hello_classification_scales_as_the_network_was_trained(device: str) -> None:
    """The shipped network, which has no scaling inside, knows the shipped cat."""
    shipped = ("-m", MODEL, "-i", CAT, "-d", device, "--labels", LABELS, "-nt", 3)
    scaling = ("--mean", 127, 127, 127, "--scale", 128, 128, 128, "--rgb")
    done = run(ROOT / "samples/hello_classification.py", *shipped, *scaling)
    assert done.returncode == 0, done.stderr
    lines = [line.partition("] ")[2] for line in done.stdout.splitlines()]
    heading = lines.index("classid probability label")
    rows = [line.split(maxsplit=2) for line in lines[heading + 2 : heading + 5]]
    assert {label for _, _, label in rows} <= CATS | {"lynx"}


@pytest.mark.skipif(not hasattr(signal, "SIGPIPE"), reason="pipes that close are Unix's")
@pytest.mark.parametrize(
    "command", [["samples/hello_query_device.py"], ["-m", "polydevice", "devices"]]
)
def test_a_pipe_that_closes_ends_the_output_quietly(command: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=240,
        check=False,
    )
    os.close(writer)
    assert done.returncode in (0, -signal.SIGPIPE)
    assert done.stderr == ""


@pytest.mark.parametrize("content", [b"", b"not an image"])
def test_hello_classification_says_when_the_image_is_none(
    ready_model: Path, tmp_path: Path, content: bytes
) -> None:
    image = tmp_path / "image.jpg"
    image.write_bytes(content)
    done = run(ROOT / "samples/hello_classification.py", "-m", ready_model, "-i", image)
    assert done.returncode != 0
    assert "is not an image" in done.stderr
    assert "Traceback" not in done.stderr
