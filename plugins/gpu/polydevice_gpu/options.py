"""The configuration keys of the GPU device."""

from __future__ import annotations

import os
import re
from typing import Annotated, Literal

from pydantic import BeforeValidator
from typing_extensions import Self

from polydevice.errors import OptionValueError
from polydevice.options import Flag, Options, option
from polydevice_gpu.cl.discovery.selection import LEGAL as LEGAL_DEVICES
from polydevice_gpu.cl.discovery.selection import VARIABLE as DEVICES_VARIABLE
from polydevice_gpu.cl.discovery.selection import Selection
from polydevice_gpu.custom.layer import CustomLayer, read_layers

AUTO_STREAMS = "GPU_THROUGHPUT_AUTO"
_STREAMS_OF_AUTO = 2
_MAXIMUM_STREAMS = 64
_DEVICE_ID = re.compile(r"\d*")


def _streams(value: object) -> int:
    if value == AUTO_STREAMS:
        return _STREAMS_OF_AUTO
    number = _integer(value)
    if number is None or not 1 <= number <= _MAXIMUM_STREAMS:
        raise ValueError(f"legal: {AUTO_STREAMS}, or 1 to {_MAXIMUM_STREAMS}")
    return number


def _level(value: object) -> int:
    number = _integer(value)
    if number is None or not 0 <= number <= 3:
        raise ValueError("legal: 0 (none), 1 (low), 2 (medium), 3 (high)")
    return number


def _threads(value: object) -> int:
    number = _integer(value)
    if number is None:
        raise ValueError("legal: an integer; outside of 0 to the number of cores it means all")
    cores = available_cores()
    return number if 0 <= number <= cores else cores


def _integer(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return None
    try:
        return int(value)
    except ValueError:
        return None


def _device_id(value: object) -> str:
    text = str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else "?"
    if not _DEVICE_ID.fullmatch(text):
        raise ValueError("legal: a number such as 0 for GPU.0, or nothing")
    return text


def _devices(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"legal: {LEGAL_DEVICES}")
    Selection.parse(value)
    return value


def _config_file(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("legal: paths of XML files, separated by blanks")
    read_layers(value)
    return value


def available_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


Level = Annotated[int, BeforeValidator(_level)]
TuningModeName = Literal[
    "TUNING_DISABLED",
    "TUNING_CREATE",
    "TUNING_USE_EXISTING",
    "TUNING_UPDATE",
    "TUNING_RETUNE",
    "TUNING_CHECK",
]


class GpuOptions(Options):
    """Configuration of the GPU device."""

    devices: Annotated[str, BeforeValidator(_devices)] = option(
        "GPU_DEVICES",
        "",
        exported=False,
        legal=LEGAL_DEVICES,
        help="Which OpenCL devices count as GPUs. all-gpus is the default; intel is the original "
        "rule (Intel's GPUs only); cpu admits CPU-type OpenCL devices such as PoCL; name:TEXT "
        "admits by name, not:TEXT excludes. Empty takes the environment variable "
        f"{DEVICES_VARIABLE}, which has the same grammar.",
    )
    device_id: Annotated[str, BeforeValidator(_device_id)] = option(
        "DEVICE_ID",
        "",
        exported=False,
        legal="a number such as 0",
        help="Which device; GPU.1 is the same as 1.",
    )
    perf_count: Flag = option(
        "PERF_COUNT", False, help="Measure the time of every layer, for get_perf_counts()."
    )
    throughput_streams: Annotated[int, BeforeValidator(_streams)] = option(
        "GPU_THROUGHPUT_STREAMS",
        1,
        legal=f"{AUTO_STREAMS}, or 1 to {_MAXIMUM_STREAMS}",
        help="How many asynchronous requests run at the same time, each on a queue of its own. "
        f"{AUTO_STREAMS} means {_STREAMS_OF_AUTO}.",
    )
    exclusive_async_requests: Flag = option(
        "EXCLUSIVE_ASYNC_REQUESTS",
        False,
        help="Let the asynchronous requests of all networks loaded with this key run one after "
        "the other. Without effect on networks with several streams.",
    )
    plugin_priority: Level = option(
        "GPU_PLUGIN_PRIORITY",
        0,
        aliases=("CLDNN_PLUGIN_PRIORITY",),
        legal="0 (none), 1 (low), 2 (medium), 3 (high)",
        help="Priority of the queues; the device needs cl_khr_priority_hints.",
    )
    plugin_throttle: Level = option(
        "GPU_PLUGIN_THROTTLE",
        0,
        aliases=("CLDNN_PLUGIN_THROTTLE",),
        legal="0 (none), 1 (low), 2 (medium), 3 (high)",
        help="Throttling of the queues to save power; the device needs cl_khr_throttle_hints.",
    )
    cache_dir: str = option(
        "CACHE_DIR",
        "",
        exported=False,
        legal="a folder",
        help="Folder that keeps compiled kernels, so that loading again compiles nothing. Made if "
        "needed; empty for none.",
    )
    max_num_threads: Annotated[int, BeforeValidator(_threads)] = option(
        "GPU_MAX_NUM_THREADS",
        0,
        exported=False,
        aliases=("CLDNN_MAX_NUM_THREADS",),
        legal="an integer; outside of 0 to the number of cores it means all",
        help="How many threads compile kernels and compute the layers that run on the host; 0 "
        "takes every core the process may use.",
    )
    inference_precision: Literal["undefined", "f32", "f16"] = option(
        "INFERENCE_PRECISION_HINT",
        "undefined",
        help="Type in which f16 and f32 values are kept between layers: undefined leaves each the "
        "type that the model gives it, f32 and f16 take that one for all. f16 halves memory "
        "traffic and reaches matrix units where the device has them; sums stay in f32. Values of "
        "other types, inputs and outputs are not changed.",
    )
    memory_pool: Flag = option(
        "CLDNN_MEM_POOL", True, help="Let values that do not live at the same time share memory."
    )
    dynamic_batch: Flag = option(
        "DYN_BATCH_ENABLED",
        False,
        help="Let requests compute a part of the network's batch: InferRequest.set_batch(1) to the "
        "batch that the network has. Networks that mix the items of a batch are refused.",
    )
    config_file: Annotated[str, BeforeValidator(_config_file)] = option(
        "CONFIG_FILE",
        "",
        adds=True,
        legal="paths of XML files, separated by blanks",
        help="Files with the user's kernels for operations, which win over the device's own; see "
        "[custom layers](custom-layers.md). Read when the key is set and when a network is loaded. "
        "Setting it again adds files, whose layers win; an empty text forgets all.",
    )
    tuning_mode: TuningModeName = option(
        "TUNING_MODE",
        "TUNING_DISABLED",
        exported=False,
        help="What to do with TUNING_FILE when a network is loaded. TUNING_USE_EXISTING takes its "
        "kernels; TUNING_CREATE also times those of layers that are not in it and adds them; "
        "TUNING_RETUNE times all layers anew; TUNING_UPDATE rewrites old entries and drops those "
        "that no longer work; TUNING_CHECK times each beside the choice without tuning, in turn, "
        "and drops those that are not faster. See [tuning](tuning.md).",
    )
    tuning_file: str = option(
        "TUNING_FILE",
        "",
        exported=False,
        legal="a path",
        help="File that keeps the kernels found by tuning.",
    )
    tuning_pretuned: Flag = option(
        "TUNING_PRETUNED",
        True,
        exported=False,
        help="Whether layers that TUNING_FILE does not have take the kernels of the file that "
        "polydevice ships for exactly this device, driver and version of the kernels, where there "
        "is one; not while tuning. See [tuning](tuning.md).",
    )
    tuning_budget_s: int = option(
        "TUNING_BUDGET_S",
        0,
        exported=False,
        ge=0,
        help="Seconds after which loading a network starts to time no further layer; loading again "
        "goes on. 0 for no limit.",
    )
    graph_dumps_dir: str = option(
        "CLDNN_GRAPH_DUMPS_DIR",
        "",
        exported=False,
        legal="a folder",
        help="Where to write the graph after lowering and after each pass, as GraphViz .dot files. "
        "Made if needed; empty for none.",
    )
    sources_dumps_dir: str = option(
        "CLDNN_SOURCES_DUMPS_DIR",
        "",
        exported=False,
        legal="a folder",
        help="Where to write the source of every program, clDNN_program_*.cl, with the compiler's "
        "log at the end. Made if needed; empty for none.",
    )
    dump_kernels: Flag = option(
        "DUMP_KERNELS",
        False,
        exported=False,
        help="Write the sources of custom layers, with their macros and the compiler's log, as "
        "clDNN_program_*.cl to CLDNN_SOURCES_DUMPS_DIR or else the working directory.",
    )
    integers: Flag = option(
        "LP_TRANSFORMS_MODE",
        True,
        help="Compute the convolutions and matrix products of quantised networks on 8-bit "
        "integers, where the device multiplies those faster than floats; NO computes them in "
        "floating point, exactly as their FakeQuantize or QuantizeLinear layers say. Results may "
        "differ by one step of what is quantised where a number lies at half a step, and where "
        "functions of 8-bit integers are not rounded on the way.",
    )
    nv12_two_inputs: Flag = option(
        "GPU_NV12_TWO_INPUTS",
        False,
        aliases=("CLDNN_NV12_TWO_INPUTS",),
        help="Give the two planes of NV12 images as two inputs for every item of the batch, "
        "<name>_Y0 and <name>_UV0 and so on. For inputs whose preprocessing has color_format NV12.",
    )
    fp16_for_quantized: Flag = option(
        "CLDNN_ENABLE_FP16_FOR_QUANTIZED_MODELS",
        True,
        help="Whether quantised networks keep values in f16 where the model or "
        "INFERENCE_PRECISION_HINT says so. Otherwise theirs are kept in f32; other networks are "
        "not affected.",
    )
    loop_unrolling: Flag = option(
        "GPU_ENABLE_LOOP_UNROLLING",
        True,
        help="Write loops of a known number of iterations out as plain layers, which are fused "
        "across iterations. Otherwise they stay loops, on the device too; one that runs once is "
        "always written out.",
    )

    single_launch: Literal["AUTO", "YES", "NO"] = option(
        "GPU_SINGLE_LAUNCH",
        "AUTO",
        help="Run launches that follow each other as one, with barriers between them: where that "
        "is faster, always, or never. See [one launch](one-launch.md).",
    )

    def trial(self, *, in_f32: bool) -> Self:
        """Return the configuration without tuning and dumps, with one stream."""
        quiet = GpuOptions.model_construct()
        fields = ("tuning_mode", "graph_dumps_dir", "sources_dumps_dir", "dump_kernels")
        changes: dict[str, object] = {name: getattr(quiet, name) for name in fields}
        changes["throughput_streams"] = 1
        if in_f32:
            changes["inference_precision"] = "f32"
        return self.model_copy(update=changes)

    @property
    def streams(self) -> int:
        """Number of streams, with PERFORMANCE_HINT resolved."""
        return self.hinted("throughput_streams", _STREAMS_OF_AUTO)

    @property
    def selection(self) -> Selection:
        """The rule for devices: this key's, else the environment variable's."""
        return Selection.parse(self.devices) if self.devices else Selection.from_environment()

    @property
    def custom_layers(self) -> dict[str, CustomLayer]:
        """Operation type → the user's kernel.

        Raises:
            OptionValueError: the files are no longer what they were when the key was set.
        """
        try:
            return read_layers(self.config_file)
        except ValueError as error:
            raise OptionValueError(f"CONFIG_FILE={self.config_file!r}: {error}") from None

    @property
    def compile_threads(self) -> int:
        """Threads that compile kernels."""
        return self.max_num_threads or available_cores()
