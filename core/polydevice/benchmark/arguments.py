"""The command line of ``polydevice bench``."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from polydevice.benchmark.printing import warn
from polydevice.errors import OptionValueError

_DEFAULT_SECONDS = {"CPU": 60.0, "GPU": 60.0}
_UNKNOWN_SECONDS = 120.0


class _Help(argparse.Action):
    """-h: the options, and the devices there are."""

    def __init__(self, option_strings: Sequence[str], dest: str, **_: object) -> None:
        super().__init__(option_strings, dest, nargs=0, help="show this, and the devices there are")

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print and leave."""
        from polydevice.core import Core

        parser.print_help()
        with Core() as core:
            sys.stdout.write(f"\nAvailable target devices: {' '.join(core.available_devices)}\n")
        parser.exit()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of benchmark_app to a parser."""
    add = parser.add_argument
    add("-h", "--help", action=_Help, dest=argparse.SUPPRESS)
    add("-m", "--path_to_model", required=True, metavar="FILE", help=".xml, .onnx or .blob")
    add("-i", "--paths_to_input", nargs="*", default=[], metavar="FILE",
        help="images, .npy or binary files, folders of them, or name:file1,file2; random data if "
        "left out")  # fmt: skip
    add("-d", "--target_device", default="CPU", metavar="DEVICE",
        help="CPU, GPU.1, HETERO:GPU,CPU; several go in one argument, with blanks")  # fmt: skip
    add("-c", "--path_to_cldnn_config", default="", metavar="FILE", help="custom GPU layers")
    add("-hint", "--perf_hint", choices=("latency", "throughput"), help="lets the device choose")
    add(
        "-api",
        "--api_type",
        dest="api",
        choices=("sync", "async"),
        default="async",
        help="async: many requests at once",
    )
    add("-niter", "--number_iterations", type=_positive, metavar="N", help="number of inferences")
    add("-nireq", "--number_infer_requests", type=_positive, metavar="N", help="requests in flight")
    add("-b", "--batch_size", type=_positive, metavar="N", help="batch; the model's if left out")
    add("-t", "--time", type=_positive_seconds, metavar="S", help="seconds to measure")
    add(
        "-shape",
        "--shape",
        default="",
        metavar="SHAPE",
        help="[1,3,224,224], or name[1,3],other[1,4]",
    )
    add("-nstreams", "--number_streams", default="", metavar="N", help="4, or CPU:2,GPU:4")
    add("-nthreads", "--number_threads", type=_positive, metavar="N", help="threads of the CPU")
    add("-pin", "--infer_threads_pinning", type=str.upper, metavar="MODE",
        choices=("YES", "NO", "NUMA", "HYBRID_AWARE"),
        help="YES, NO, NUMA or HYBRID_AWARE: threads of the CPU kept on their cores")  # fmt: skip
    add("-qb", "--quantization_bits", type=int, choices=(8, 16),
        help="weights of GNA devices; no other device uses it")  # fmt: skip
    add(
        "-enforcebf16",
        "--enforce_bfloat16",
        dest="enforcebf16",
        action="store_true",
        help="bfloat16 on the CPU",
    )
    add("--latency_percentile", type=int, choices=range(1, 101), default=50, metavar="P",
        help="which percentile the latency line reports (1-100)")  # fmt: skip
    add("-pc", "--perf_counts", action="store_true", default=None, help="print times per layer")
    add(
        "-exec_graph_path",
        "--exec_graph_path",
        metavar="FILE",
        help="write the executed graph as IR",
    )
    add("-report_type", "--report_type", help="write CSV reports",
        choices=("no_counters", "average_counters", "detailed_counters"))  # fmt: skip
    add("-report_folder", "--report_folder", default="", metavar="DIR", help="where reports go")
    add("-json", metavar="FILE", help="write every figure as JSON")
    add("-dump_config", "--dump_config", metavar="FILE", help="write {device: {key: value}}")
    add(
        "-load_config",
        "--load_config",
        metavar="FILE",
        help="read {device: {key: value}}; options here win",
    )
    add("-cdir", "--cache_dir", default="", metavar="DIR", help="cache of compiled networks")
    add("-lfile", "--load_from_file", action="store_true", help="load by path, without reading")
    add("-ip", "--input_precision", metavar="TYPE", help="element type of the inputs, such as U8")
    add("-op", "--output_precision", metavar="TYPE", help="element type of the outputs")
    add(
        "-iop",
        "--input_output_precision",
        dest="iop",
        default="",
        metavar="LIST",
        help="precisions by name, such as image:U8,prob:FP16",
    )
    add("-layout", "--layout", default="", metavar="LIST",
        help="layouts of inputs: [NHWC] for all, or image[NHWC],info[NC]")  # fmt: skip
    add("-imean", "--mean_values", default="", metavar="LIST",
        help="subtracted from each channel: [104,117,123], or image[104,117,123]")  # fmt: skip
    add("-iscale", "--scale_values", default="", metavar="LIST",
        help="by which each channel is divided afterwards; like -imean")  # fmt: skip
    add("-l", "--path_to_extension", default="", metavar="MODULE",
        help="Python module that defines further operations")  # fmt: skip
    add(
        "-stream_output",
        "--stream_output",
        action="store_true",
        help="progress as plain lines, for log files",
    )
    add("-progress", "--progress", action="store_true", help="progress bar")
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


def parse_channels(text: str, known: list[str], option: str) -> dict[str, list[float]]:
    """Read ``[104,117,123]`` (for every input) or ``a[0.5],b[1,2,3]``.

    Raises:
        OptionValueError: for an unknown name, or text of another form.
    """
    found: dict[str, list[float]] = {}
    rest = text.replace(" ", "")
    pattern = re.compile(r"([^\[\],]*)\[([-+0-9.,eE]+)\],?")
    while rest:
        match = pattern.match(rest)
        try:
            values = [float(item) for item in match[2].split(",")] if match else []
        except ValueError:
            values = []
        if match is None or not values:
            raise OptionValueError(
                f"{option} {text!r} is not legal at {rest!r}; write [1,2,3] or name[1,2,3]"
            )
        for target in [match[1]] if match[1] else known:
            if target not in known:
                raise OptionValueError(f"{option} names {target!r}; known: {', '.join(known)}")
            found[target] = values
        rest = rest[match.end() :]
    return found


def parse_names(text: str, known: list[str], option: str) -> dict[str, str]:
    """Read ``a:U8,b:FP16``, ``a[NHWC],b[NC]``, or ``[NHWC]`` for all.

    Raises:
        OptionValueError: for an unknown name, or text of another form.
    """
    everywhere = re.fullmatch(r"\s*\[\s*(\w+)\s*\]\s*", text)
    if everywhere is not None:
        return dict.fromkeys(known, everywhere[1])
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
    def of(cls, options: argparse.Namespace, requests: int, device: str = "CPU") -> Limits:
        """Apply benchmark_app's defaults.

        Without limits 60 s, or 120 s on devices other than CPU and GPU; async rounds the number of
        inferences up to a multiple of the requests.
        """
        iterations, seconds = options.number_iterations, options.time
        if iterations is None and seconds is None:
            known = [value for name, value in _DEFAULT_SECONDS.items() if name in device]
            seconds = max(known, default=_UNKNOWN_SECONDS)
            if not known:
                warn(f"-t and -niter are not given: {device} is measured for {seconds:g} s")
        if iterations is not None and options.api == "async" and iterations % requests:
            given, iterations = iterations, -(-iterations // requests) * requests
            warn(f"-niter {given} is rounded up to {iterations}, a multiple of {requests} requests")
        return cls(iterations, seconds)

    def __str__(self) -> str:
        parts = []
        if self.iterations is not None:
            parts.append(f"{self.iterations} iterations")
        if self.seconds is not None:
            parts.append(f"{self.seconds * 1e3:g} ms duration")
        return ", ".join(parts)
