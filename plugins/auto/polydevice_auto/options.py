"""The configuration keys of AUTO and MULTI; keys of their members are kept and forwarded."""

from __future__ import annotations

from polydevice.options import Flag, option
from polydevice.options.composite import CompositeOptions

PRIORITIES = "MULTI_DEVICE_PRIORITIES"


class AutoOptions(CompositeOptions):
    """Keys of AUTO itself, and what is meant for the device that it chooses."""

    priorities: str = option(
        PRIORITIES,
        "",
        aliases=("AUTO_DEVICE_LIST",),
        help="Candidates in order of preference, joined by commas; set by the name "
        "'AUTO:GPU,CPU'. Empty takes every device of the machine: discrete GPUs, other "
        "accelerators, integrated GPUs, then the CPU.",
    )
    startup_fallback: Flag = option(
        "ENABLE_STARTUP_FALLBACK",
        True,
        help="Start on the CPU, if it is a candidate, while the preferred device compiles the "
        "network, and move over when it is ready.",
    )
    runtime_fallback: Flag = option(
        "ENABLE_RUNTIME_FALLBACK",
        True,
        help="Keep the network on the CPU loaded after moving over, and run requests there when "
        "the device fails; NO gives its memory back instead.",
    )
    timeout_ms: int = option(
        "AUTO_DEVICE_TIMEOUT_MS",
        60_000,
        ge=0,
        help="Milliseconds after which a device that took over from the CPU and has not ended an "
        "inference counts as hanging: the CPU runs the request, and all others from then on. At "
        "least 100 times the device's average; for its first inference 10 times as much. 0 waits "
        "for ever, as does ENABLE_RUNTIME_FALLBACK=NO.",
    )


class MultiOptions(CompositeOptions):
    """Keys of MULTI itself, and what is meant for its members."""

    priorities: str = option(
        PRIORITIES,
        "",
        help="Devices in order of preference, joined by commas, each with the number of requests "
        "it runs at a time in brackets if that is not to be its optimal one; set by the name "
        "'MULTI:GPU.0,CPU(2)'.",
    )
    timeout_ms: int = option(
        "MULTI_DEVICE_TIMEOUT_MS",
        60_000,
        ge=0,
        help="Milliseconds after which a device that has not ended an inference counts as hanging: "
        "another device runs the request, and this one gets no more. At least 100 times the "
        "device's average; for its first inference 10 times as much. 0 waits for ever.",
    )
