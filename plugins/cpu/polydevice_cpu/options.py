"""The configuration keys of the CPU device."""

from __future__ import annotations

import os
from typing import Annotated, Literal

from pydantic import BeforeValidator
from typing_extensions import Self

from polydevice.options import Flag, Options, option

AUTO_STREAMS = ("CPU_THROUGHPUT_AUTO", "CPU_THROUGHPUT_NUMA")


def _streams(value: object) -> int:
    if value in AUTO_STREAMS:
        return 0
    try:
        number = int(str(value))
    except ValueError:
        number = -1
    if number < 1:
        raise ValueError(f"legal: {', '.join(AUTO_STREAMS)}, or a number from 1")
    return number


class CpuOptions(Options):
    """Configuration of the CPU device."""

    threads_num: int = option(
        "CPU_THREADS_NUM",
        0,
        ge=0,
        help="Threads that all streams together compute with; 0 takes every core the process may "
        "use.",
    )
    throughput_streams: Annotated[int, BeforeValidator(_streams)] = option(
        "CPU_THROUGHPUT_STREAMS",
        1,
        legal=f"{', '.join(AUTO_STREAMS)}, or a number from 1",
        help="How many asynchronous requests run at the same time; they share the threads evenly. "
        "CPU_THROUGHPUT_AUTO gives each core a stream of its own.",
    )
    bind_thread: Literal["NO", "YES", "NUMA", "HYBRID_AWARE"] = option(
        "CPU_BIND_THREAD",
        "NO",
        help="Keep the threads of each stream to cores of its own (YES), or to those of one memory "
        "node (NUMA, HYBRID_AWARE), as far as there are enough. It is for asynchronous requests: "
        "infer() computes in the caller's thread, which is left where it is.",
    )
    stream_threads: int = option(
        "CPU_THREADS_PER_STREAM",
        0,
        ge=0,
        help="Threads that one stream computes with; 0 shares CPU_THREADS_NUM out evenly.",
    )
    enforce_bf16: Flag = option(
        "ENFORCE_BF16",
        False,
        help="Compute convolutions and matrix products on bfloat16, with sums in f32: about twice "
        "as fast where the processor has bfloat16, with 8 bits of precision.",
    )
    enforce_f16: Flag = option(
        "ENFORCE_F16",
        False,
        help="Compute convolutions and matrix products on float16, with sums in f32, where the "
        "processor multiplies it (AVX512-FP16): 11 bits of precision, and no number above 65504; "
        "slower than f32 with oneDNN 3.2.",
    )
    integers: Flag = option(
        "LP_TRANSFORMS_MODE",
        True,
        help="Compute the convolutions and matrix products of quantised networks on 8-bit "
        "integers, or in floating point with less roundings where the processor multiplies bytes "
        "inexactly; NO computes them in floating point, exactly as their layers say. Results may "
        "differ by one step of what is quantised where a number lies at half a step, and where "
        "functions of 8-bit integers are not rounded on the way.",
    )
    row_group: int = option(
        "DYNAMIC_QUANTIZATION_GROUP_SIZE",
        0,
        ge=0,
        help="Round what is multiplied with matrices of 4 or 8 bits to 8 bits too, so many numbers "
        "of a row at most together (8 at least), which have one factor: up to 2.5 times as fast, "
        "each number within 0.4 % of the largest of its group. 0 leaves all exact but products of "
        "models that ask for it (MatMulNBits with accuracy_level 4). Nothing is rounded on "
        "processors without AVX-512 VNNI.",
    )
    perf_count: Flag = option(
        "PERF_COUNT", False, help="Measure the time of every layer, for get_perf_counts()."
    )
    dynamic_batch: Flag = option(
        "DYN_BATCH_ENABLED",
        False,
        help="Let requests compute a part of the network's batch: InferRequest.set_batch(1) to the "
        "batch that the network has. Networks that mix the items of a batch are refused.",
    )
    batch_limit: int = option(
        "DYN_BATCH_LIMIT",
        0,
        ge=0,
        help="The largest batch that InferRequest.set_batch takes, where it is smaller than the "
        "network's; a number above 1 is DYN_BATCH_ENABLED=YES too, and 0 sets no limit.",
    )
    dot_prefix: str = option(
        "DUMP_EXEC_GRAPH_AS_DOT",
        "",
        help="Write the executed graph of every network that is loaded, for Graphviz, into a file "
        "of this path and _NETWORK.dot. Networks of unknown sizes have none at load.",
    )
    exclusive_async_requests: Flag = option(
        "EXCLUSIVE_ASYNC_REQUESTS",
        False,
        help="Let the asynchronous requests of all networks loaded with this key run one after "
        "the other.",
    )

    def trial(self, *, in_f32: bool) -> Self:
        """Return the configuration with one stream."""
        changes: dict[str, object] = {"throughput_streams": 1}
        if in_f32:
            changes.update(enforce_bf16=False, enforce_f16=False, integers=False)
        return self.model_copy(update=changes)

    def read(self, key: str) -> str:
        """Return the value of a key as text; of the streams, the number that runs."""
        return (
            str(self.streams) if self.field_of(key) == "throughput_streams" else super().read(key)
        )

    def exported(self) -> dict[str, str]:
        """Return what an exported network keeps; AUTO stays AUTO on another machine."""
        kept = super().exported()
        if kept.get("CPU_THROUGHPUT_STREAMS") == "0":
            kept["CPU_THROUGHPUT_STREAMS"] = AUTO_STREAMS[0]
        return kept

    @property
    def streams(self) -> int:
        """Number of streams, with CPU_THROUGHPUT_AUTO and PERFORMANCE_HINT resolved."""
        return self.hinted("throughput_streams", self.cores) or self.cores

    @property
    def cores(self) -> int:
        """Threads for all streams together."""
        return self.threads_num or available_cores()

    @property
    def threads_per_stream(self) -> int:
        """Threads that one inference computes with."""
        return self.stream_threads or max(1, self.cores // self.streams)

    @property
    def has_dynamic_batch(self) -> bool:
        """Whether requests may compute a part of the network's batch."""
        return self.dynamic_batch or self.batch_limit > 1


def available_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
