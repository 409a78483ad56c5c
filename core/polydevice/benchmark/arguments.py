"""The command line of ``polydevice bench``."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass

from polydevice.errors import OptionValueError

_FLAGS = ("-pc", "-progress", "-stream_output")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of benchmark_app to a parser."""
    add = parser.add_argument
    add("-m", "--path_to_model", required=True, metavar="FILE", help=".xml, .onnx or .blob")
    add("-i", "--paths_to_input", nargs="*", default=[], metavar="FILE",
        help="image, .npy or binary files, or name:file; random data if left out")  # fmt: skip
    add("-d", "--target_device", default="CPU", metavar="DEVICE",
        help="CPU, GPU.1, HETERO:GPU,CPU; several go in one argument, with blanks")  # fmt: skip
    add("-c", "--path_to_cldnn_config", default="", metavar="FILE", help="custom GPU layers")
    add("-hint", "--perf_hint", choices=("latency", "throughput"), help="lets the device choose")
    add("-api", choices=("sync", "async"), default="async", help="async: many requests at once")
    add("-niter", "--number_iterations", type=_positive, metavar="N", help="number of inferences")
    add("-nireq", "--number_infer_requests", type=_positive, metavar="N", help="requests in flight")
    add("-b", "--batch_size", type=_positive, metavar="N", help="batch; the model's if left out")
    add("-t", "--time", type=_positive_seconds, metavar="S", help="seconds to measure")
    add("-shape", default="", metavar="SHAPE", help="[1,3,224,224], or name[1,3],other[1,4]")
    add("-nstreams", "--number_streams", default="", metavar="N", help="4, or CPU:2,GPU:4")
    add("-nthreads", "--number_threads", type=_positive, metavar="N", help="threads of the CPU")
    add("-enforcebf16", action="store_true", help="bfloat16 on the CPU")
    add("--latency_percentile", type=int, choices=range(1, 101), default=50, metavar="P",
        help="which percentile the latency line reports (1-100)")  # fmt: skip
    add("-pc", "--perf_counts", action="store_true", default=None, help="print times per layer")
    add("-exec_graph_path", metavar="FILE", help="write the executed graph as IR")
    add("-report_type", choices=("no_counters", "average_counters", "detailed_counters"),
        help="write CSV reports")  # fmt: skip
    add("-report_folder", default="", metavar="DIR", help="where reports go")
    add("-json", metavar="FILE", help="write every figure as JSON")
    add("-dump_config", metavar="FILE", help="write {device: {key: value}}")
    add("-load_config", metavar="FILE", help="read {device: {key: value}}; options here win")
    add("-cdir", "--cache_dir", default="", metavar="DIR", help="cache of compiled networks")
    add("-lfile", "--load_from_file", action="store_true", help="load by path, without reading")
    add("-ip", "--input_precision", metavar="TYPE", help="element type of the inputs, such as U8")
    add("-op", "--output_precision", metavar="TYPE", help="element type of the outputs")
    add("-iop", default="", metavar="LIST", help="precisions by name, such as image:U8,prob:FP16")
    add("-layout", default="", metavar="LIST", help="layouts of inputs, such as image[NHWC]")
    add("-l", "--path_to_extension", default="", metavar="MODULE",
        help="Python module that defines further operations")  # fmt: skip
    add("-stream_output", action="store_true", help="progress as plain lines, for log files")
    add("-progress", action="store_true", help="progress bar")
    add("--compare", default="", metavar="RUNTIMES", help="onnxruntime,openvino: measured in turn")
    add("--first_inference", action="store_true",
        help="measure process start to first answer, cold and warm")  # fmt: skip
    add("--seed", type=int, default=0, help="of the random inputs")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not possible; use 1 or more")
    return number


def _positive_seconds(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not possible; use a number of seconds above 0")
    return number


def parse_shapes(text: str, inputs: list[str]) -> dict[str, list[int]]:
    """Read ``[1,3]`` (for every input) or ``a[1,3],b[2]``.

    Raises:
        OptionValueError: saying what the text should look like.
    """
    if not text:
        return {}
    found: dict[str, list[int]] = {}
    rest = text.replace(" ", "")
    pattern = re.compile(r"([^\[\],]*)\[([0-9,]*)\],?")
    while rest:
        match = pattern.match(rest)
        if match is None:
            raise OptionValueError(
                f"-shape {text!r} is not legal at {rest!r}; write [1,3,224,224] or name[1,3]"
            )
        name, sizes = match.groups()
        values = [int(size) for size in sizes.split(",") if size]
        for target in [name] if name else inputs:
            if target not in inputs:
                raise OptionValueError(
                    f"-shape names {target!r}; the inputs are {', '.join(inputs)}"
                )
            found[target] = values
        rest = rest[match.end() :]
    return found


def parse_names(text: str, known: list[str], option: str) -> dict[str, str]:
    """Read ``a:U8,b:FP16`` or ``a[NHWC],b[NC]``.

    Raises:
        OptionValueError: for an unknown name, or text of another form.
    """
    found: dict[str, str] = {}
    for item in filter(None, text.replace(" ", "").split(",")):
        match = re.fullmatch(r"(.+?)(?::|\[)([A-Za-z0-9_]+)\]?", item)
        if match is None:
            raise OptionValueError(
                f"{option} {item!r} is not legal; write name:VALUE or name[VALUE]"
            )
        if match[1] not in known:
            raise OptionValueError(f"{option} names {match[1]!r}; known: {', '.join(known)}")
        found[match[1]] = match[2]
    return found


def parse_streams(text: str, devices: list[str]) -> dict[str, str]:
    """Read ``4`` (for every device) or ``CPU:2,GPU:4``.

    Raises:
        OptionValueError: for a device that is not measured.
    """
    found: dict[str, str] = {}
    for item in filter(None, text.split(",")):
        device, colon, number = item.rpartition(":")
        if colon and device not in devices:
            raise OptionValueError(f"-nstreams names {device!r}; devices: {', '.join(devices)}")
        for target in [device] if colon else devices:
            found[target] = number
    return found


@dataclass(frozen=True)
class Limits:
    """When measuring ends.

    Attributes:
        iterations: at least this many inferences; None has no such limit.
        seconds: at least this long; None has no such limit.
    """

    iterations: int | None
    seconds: float | None

    @classmethod
    def of(cls, options: argparse.Namespace, requests: int) -> Limits:
        """Apply benchmark_app's defaults: 60 s without limits; async rounds up to the requests."""
        iterations, seconds = options.number_iterations, options.time
        if iterations is None and seconds is None:
            seconds = 60.0
        if iterations is not None and options.api == "async":
            iterations = -(-iterations // requests) * requests
        return cls(iterations, seconds)

    def __str__(self) -> str:
        parts = []
        if self.iterations is not None:
            parts.append(f"{self.iterations} iterations")
        if self.seconds is not None:
            parts.append(f"{self.seconds * 1e3:g} ms duration")
        return ", ".join(parts)
