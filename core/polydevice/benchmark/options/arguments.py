"""The command line of ``polydevice bench``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

from polydevice.benchmark.printing import warn
from polydevice.dataclass import dataclass
from polydevice.errors import OptionValueError

Number = TypeVar("Number", int, float)

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


HINTS = {
    "latency": "LATENCY",
    "throughput": "THROUGHPUT",
    "tput": "THROUGHPUT",
    "cumulative_throughput": "THROUGHPUT",
    "ctput": "THROUGHPUT",
}
"""-hint → PERFORMANCE_HINT."""

CUMULATIVE = ("cumulative_throughput", "ctput")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of benchmark_app to a parser."""
    add = parser.add_argument
    add("-h", "--help", action=_Help, dest=argparse.SUPPRESS)
    add("-m", "--path_to_model", required=True, metavar="FILE", help=".xml, .onnx or .blob")
    add("-i", "--paths_to_input", nargs="*", action="extend", default=[], metavar="FILE",
        help="images, .npy or binary files, folders of them, or name:file1,file2; random data if "
        "left out")  # fmt: skip
    add("-d", "--target_device", default="CPU", metavar="DEVICE",
        help="CPU, GPU.1, HETERO:GPU,CPU; several go in one argument, with blanks")  # fmt: skip
    add("-c", "--path_to_cldnn_config", default="", metavar="FILE", help="custom GPU layers")
    add("-hint", "--perf_hint", choices=(*HINTS, "none"),
        help="lets the device choose; cumulative_throughput of AUTO is MULTI")  # fmt: skip
    add(
        "-api",
        "--api_type",
        dest="api",
        choices=("sync", "async"),
        help="async: many requests at once; sync is what is left out with -hint latency",
    )
    add("-niter", "--number_iterations", type=_count, metavar="N",
        help="number of inferences; 0 compiles the network and ends")  # fmt: skip
    add("-max_irate", "--maximum_inference_rate", type=_rate, default=0, metavar="FPS",
        help="at most so many items per second; 0 has no limit")  # fmt: skip
    add("-nireq", "--number_infer_requests", type=positive, metavar="N", help="requests in flight")
    add("-b", "--batch_size", type=positive, metavar="N", help="batch; the model's if left out")
    add("-t", "--time", type=_seconds, metavar="S", help="seconds to measure")
    add(
        "-shape",
        "--shape",
        default="",
        metavar="SHAPE",
        help="[1,3,224,224], or name[1,3],other[?,1..4]; ? and 1..4 are sizes known with the data",
    )
    add("-data_shape", "--data_shape", default="", metavar="SHAPES",
        help="of the data, in turn, for a network of unknown sizes: [1,3,224,224][1,3,448,448]"
        )  # fmt: skip
    add("--shapes", default="", metavar="SHAPES",
        help="take turns with these: 1x3x224x224,1x3x320x200 or random:50:1x3x32..640x32..640, "
        "a=1x8+b=1x1 where inputs differ; percentiles over shapes, of the first inference with "
        "each and of later ones")  # fmt: skip
    add("-nstreams", "--number_streams", default="", metavar="N", help="4, AUTO, or CPU:2,GPU:4")
    add("-nthreads", "--number_threads", type=positive, metavar="N", help="threads of the CPU")
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
    add("-infer_precision", "--infer_precision", default="", metavar="TYPE",
        help="bf16, or CPU:bf16,GPU:f16: what a device computes in")  # fmt: skip
    add("-inference_only", "--inference_only", type=_truth, nargs="?", const=True, metavar="BOOL",
        help="set the inputs once, before measuring; what is left out with -data_shape is false"
        )  # fmt: skip
    add("-no_warmup", "--no_warmup", action="store_true", help="measure the first inference too")
    add("-latency_percentile", "--latency_percentile", type=int, choices=range(1, 101), default=50,
        metavar="P", help="which percentile the latency line reports (1-100)")  # fmt: skip
    add("-pc", "--perf_counts", type=_truth, nargs="?", const=True, metavar="BOOL",
        help="print times per layer")  # fmt: skip
    add("-pcsort", "--perf_counts_sort", choices=("no_sort", "sort", "simple_sort"), default="",
        help="print times per layer, in order of execution or of time, or what is executed only"
        )  # fmt: skip
    add("-pcseq", "--pcseq", type=_truth, nargs="?", const=True, default=False, metavar="BOOL",
        help="latencies by -data_shape")  # fmt: skip
    add(
        "-exec_graph_path",
        "--exec_graph_path",
        metavar="FILE",
        help="write the executed graph as IR",
    )
    add("-report_type", "--report_type", help="write CSV reports",
        choices=("no_counters", "average_counters", "detailed_counters"))  # fmt: skip
    add("-report_folder", "--report_folder", default="", metavar="DIR", help="where reports go")
    add("-json_stats", "--json_stats", type=_truth, nargs="?", const=True, default=False,
        metavar="BOOL", help="reports as JSON, not CSV")  # fmt: skip
    add("-json", "--json", metavar="FILE", help="write every figure as JSON")
    add("--report", default="", metavar="FILE",
        help="write an HTML page; measures layers and new processes too")  # fmt: skip
    add("--trace", default="", metavar="FILE",
        help="write what ran when, for Perfetto and chrome://tracing")  # fmt: skip
    add("--trace_every", type=positive, default=0, metavar="N",
        help="inferences of which one shows a GPU's commands (else: what costs 2 %%)")  # fmt: skip
    add("-dump_config", "--dump_config", metavar="FILE", help="write {device: {key: value}}")
    add(
        "-load_config",
        "--load_config",
        metavar="FILE",
        help="read {device: {key: value}}; options here win",
    )
    add("-cdir", "--cache_dir", default="", metavar="DIR", help="cache of compiled networks")
    add("-lfile", "--load_from_file", type=_truth, nargs="?", const=True, default=False,
        metavar="BOOL", help="load by path, without reading")  # fmt: skip
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
    add("-l", "-extensions", "--extensions", "--path_to_extension", dest="path_to_extension",
        default="", metavar="MODULES",
        help="Python modules that define further operations")  # fmt: skip
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
    add("--server", default="", metavar="URL",
        help="measure -m, a model of this server (http://host:port), instead of a file; of the "
        "other options -api, -b, -data_shape, -i, -json, -latency_percentile, -niter, -nireq, "
        "--seed and -t count")  # fmt: skip
    add("--seed", type=int, default=0, help="of the random inputs")


def complete(options: argparse.Namespace) -> argparse.Namespace:
    """Fill in what follows from other options."""
    if options.shapes and (options.shape or options.data_shape or options.batch_size):
        raise OptionValueError("--shapes says all about shapes; leave out -shape, -data_shape, -b")
    one_by_one = options.perf_hint == "latency" or options.shapes
    options.api = options.api or ("sync" if one_by_one else "async")
    if options.perf_counts_sort and options.perf_counts is None:
        options.perf_counts = True
    return options


def _truth(text: str) -> bool:
    if text.lower() in ("yes", "true", "t", "y", "1"):
        return True
    if text.lower() in ("no", "false", "f", "n", "0"):
        return False
    raise argparse.ArgumentTypeError(f"{text} is not possible; use true or false")


def _number(text: str, kind: Callable[[str], Number], wanted: str) -> Number:
    try:
        return kind(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is not possible; use {wanted}") from None


def _count(text: str) -> int:
    number = _number(text, int, "0 or more")
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is not possible; use 0 or more")
    return number


def positive(text: str) -> int:
    """Read a number from 1; raises ArgumentTypeError for anything else."""
    number = _number(text, int, "1 or more")
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not possible; use 1 or more")
    return number


def _rate(text: str) -> float:
    number = _number(text, float, "a number from 0")
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not possible; use a number from 0")
    return number


def _seconds(text: str) -> float:
    number = _number(text, float, "a number of seconds above 0")
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not possible; use a number of seconds above 0")
    return number


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

    def are_reached(self, iterations: int, seconds: float) -> bool:
        """Whether both limits are reached; with none of a kind, the other decides."""
        enough = self.iterations is None or iterations >= self.iterations
        late = self.seconds is None or seconds >= self.seconds
        return enough and late

    def __str__(self) -> str:
        parts = []
        if self.iterations is not None:
            parts.append(f"{self.iterations} iterations")
        if self.seconds is not None:
            parts.append(f"{self.seconds * 1e3:g} ms duration")
        return ", ".join(parts)
