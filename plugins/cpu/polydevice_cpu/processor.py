"""What the processor is called and what it can do."""

from __future__ import annotations

import platform
from functools import lru_cache
from pathlib import Path

from polydevice_cpu.onednn.library import has_instructions

_BF16 = 0xE7
"""oneDNN's bits of an instruction set with AVX-512 and bfloat16 dot products."""
_F16 = 0x1EF
"""With AVX512-FP16: products of float16."""
_VNNI = 0x67, 0xF
"""With 8-bit dot products into 32 bits: of AVX-512, and of AVX2."""


@lru_cache(maxsize=1)
def name() -> str:
    """Return the processor's name as the system reports it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Hardware", "cpu model") and value.strip():
            return " ".join(value.split())
    return platform.processor() or platform.machine() or "CPU"


def has_bf16() -> bool:
    """Whether oneDNN multiplies bfloat16 with the processor's own instructions."""
    return has_instructions(_BF16)


def has_f16() -> bool:
    """Whether oneDNN multiplies float16 with the processor's own instructions."""
    return has_instructions(_F16)


def has_int8() -> bool:
    """Whether oneDNN multiplies bytes exactly; older instructions clip sums of two to 16 bits."""
    return any(map(has_instructions, _VNNI))


def capabilities() -> list[str]:
    """Return the metric OPTIMIZATION_CAPABILITIES."""
    extra = [("BF16", has_bf16()), ("FP16", has_f16()), ("INT8", has_int8())]
    return ["FP32", *(capability for capability, there in extra if there), "BATCHED_BLOB"]
