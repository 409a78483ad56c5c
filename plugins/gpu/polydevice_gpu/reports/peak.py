"""How fast a device can be at best: operations per second by element type."""

from __future__ import annotations

from polydevice.inspection.measured import Speed
from polydevice_gpu.cl.capabilities import Capabilities
from polydevice_gpu.cl.discovery.facts import DeviceFacts

_INTEL_F32, _INTEL_F16 = 16, 32
_INTEL_I8_DP4A, _INTEL_I8 = 64, 16  # 32 operations at half the instructions per clock

# Compute capability to operations per multiprocessor and clock: f32 (lanes x 2), f16 and i8 of the
# matrix units, without sparsity. From NVIDIA's CUDA programming guide ("Arithmetic Instructions")
# and architecture papers; a newer device counts as the newest one listed.
_NVIDIA = {
    (3, 0): (384, 0, 0),
    (5, 0): (256, 0, 0),
    (6, 0): (128, 0, 0),
    (6, 1): (256, 0, 0),
    (7, 0): (128, 1024, 0),
    (7, 5): (128, 1024, 2048),
    (8, 0): (128, 2048, 4096),
    (8, 6): (256, 1024, 2048),
    (9, 0): (256, 4096, 8192),
}
_NVIDIA_DP4A = 512  # 64 a clock, 8 operations each
_OTHER_GPU_F32 = 128  # 64 lanes of multiply and add, the width of GCN, CDNA and RDNA units


def gops(facts: DeviceFacts, can: Capabilities) -> dict[str, float]:
    """Return 10^9 operations per second for I8, U8, FP16 and FP32; 0 where the clock is unknown.

    Intel's GPUs follow the formula that OpenVINO reports with: clock x units x 16 (FP32), 32
    (FP16), 64 or 16 (INT8 with and without DP4A). Others use their own operations per clock.
    """
    f32, f16, i8 = _per_clock(facts, can)
    scale = facts.max_clock_mhz / 1000 * facts.max_compute_units
    return {"I8": scale * i8, "U8": scale * i8, "FP16": scale * f16, "FP32": scale * f32}


def measured_gops(speed: Speed) -> dict[str, float]:
    """Return what `polydevice devices --measure` found, as FP32_MEASURED and so on."""
    names = {"f32": "FP32", "f16": "FP16", "i8": "I8"}
    return {f"{names[k]}_MEASURED": rate for k, rate in speed.gops.items() if k in names}


def _per_clock(facts: DeviceFacts, can: Capabilities) -> tuple[float, float, float]:
    version = (facts.compute_capability_major_nv, facts.compute_capability_minor_nv)
    if version > (0, 0):
        f32, matrix_f16, matrix_i8 = _NVIDIA[max(v for v in _NVIDIA if v <= max(version, (3, 0)))]
        dp4a = _NVIDIA_DP4A if can.integer_dot_product_ptx else f32
        return f32, matrix_f16 if can.tensor_cores_ptx else f32, matrix_i8 or dp4a
    if not facts.is_gpu:
        # One vector multiply-add a clock; cores with two such units do twice that.
        f32 = 2 * max(1, can.preferred_vector_width.get("f32", 1))
        return f32, f32, f32
    if "cl_intel_device_attribute_query" in facts.extension_names or can.sub_group_block_read:
        return _INTEL_F32, _INTEL_F16, _INTEL_I8_DP4A if can.integer_dot_product else _INTEL_I8
    f16 = 2 * _OTHER_GPU_F32 if can.fp16_arithmetic else _OTHER_GPU_F32
    i8 = 4 * _OTHER_GPU_F32 if can.integer_dot_product else _OTHER_GPU_F32
    return _OTHER_GPU_F32, f16, i8
