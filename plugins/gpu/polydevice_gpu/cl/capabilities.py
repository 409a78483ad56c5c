"""What a device can do, as named questions; kernels ask these and never who made it.

Answers come from OpenCL queries, or, where an extension string lies or is silent, from `probing`
run in a child process once per device and driver and kept in a small file.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import math
import typing
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from polydevice.files import cache_folder
from polydevice_gpu.cl import child_process, on_device
from polydevice_gpu.cl.discovery.enumeration import probe_timeout_s
from polydevice_gpu.cl.discovery.facts import DeviceFacts, Icd
from polydevice_gpu.cl.programs.warp_groups import DECLARED_LOCAL_BYTES

_PROBING_MODULES = (
    "probing/probes",
    "probing/bench",
    "probing/dot_products",
    "probing/kernel_copies",
    "queues/command_buffer",
    "library",
    "programs/builtins",
    "programs/needed",
    "programs/warp_groups",
    "child_process",
)
NOT_ASKED = "not asked: there was no time"
_LIMIT_FACTOR = 6  # a first compile on a cold GPU driver takes seconds, loading it alone less
_MAXIMUM_CRASHES = 8
_FILE_LIMIT_BYTES = 64 * 1024
_ROUNDS_DIVISIONS = 1 << 7  # CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT


@dataclass(frozen=True)
class ProbedCapabilities:
    """Answers that a kernel run in a child process gave.

    Attributes:
        c_standard: OpenCL C that programs are compiled as unless they choose themselves: ``CL1.2``,
            or the newest that runs where extensions need it (``CL3.0``, ``CL2.0``).
        own_declarations: programs may declare built-in functions themselves, which spares the
            compiler a header of all; see `programs.builtins`.
        fp16_storage: half can be loaded and stored (``vload_half``, ``vstore_half``).
        fp16_arithmetic: half can be computed with; ``cl_khr_fp16``.
        fp64: double can be computed with.
        sub_group_sizes: sizes that kernels really get; empty without sub-group functions. Several
            where ``intel_reqd_sub_group_size`` may choose among them.
        native_sub_group_width: width of a warp or wavefront, also where OpenCL C has no sub-group
            functions (NVIDIA: 32); 0 if unknown.
        sub_group_shuffle: ``sub_group_shuffle`` of cl_khr_subgroup_shuffle.
        sub_group_shuffle_intel: ``intel_sub_group_shuffle``.
        sub_group_block_read: ``intel_sub_group_block_read`` of 32-bit values.
        sub_group_block_read_16bit: ``intel_sub_group_block_read_us``.
        integer_dot_product_khr: ``dot_4x8packed_ss_int`` and its family.
        integer_dot_product_ptx: ``dp4a`` in inline PTX.
        integer_dot_product_x86: how kernels reach ``vpdpbusd`` of 512 bits: in inline ``assembly``,
            or as the function that LLVM has for it, on vectors of ``bytes`` or of ``words``.
        inline_ptx: ``asm volatile`` with PTX compiles and runs.
        tensor_cores_ptx: ``mma.sync`` m16n8k16 f16 to f32.
        async_copy_ptx: ``cp.async`` to local memory.
        warp_groups_ptx: ``wgmma`` from PTX that was changed after compiling, on local memory of
            `DECLARED_LOCAL_BYTES`.
        groups_meet: work-groups of one launch can wait for each other, one for each compute unit,
            and reach buffers by addresses that another launch noted.
        kernel_copies: ``clCloneKernel`` gives a kernel object of its own, with the arguments that
            were set.
        command_buffers: cl_khr_command_buffer replays dependent launches correctly.
        local_memory_bytes: local memory that one work-group can really use.
    """

    c_standard: str = ""
    own_declarations: bool = False
    fp16_storage: bool = False
    fp16_arithmetic: bool = False
    fp64: bool = False
    sub_group_sizes: tuple[int, ...] = ()
    native_sub_group_width: int = 0
    sub_group_shuffle: bool = False
    sub_group_shuffle_intel: bool = False
    sub_group_block_read: bool = False
    sub_group_block_read_16bit: bool = False
    integer_dot_product_khr: bool = False
    integer_dot_product_ptx: bool = False
    integer_dot_product_x86: str = ""
    inline_ptx: bool = False
    tensor_cores_ptx: bool = False
    async_copy_ptx: bool = False
    warp_groups_ptx: bool = False
    groups_meet: bool = False
    kernel_copies: bool = False
    command_buffers: bool = False
    local_memory_bytes: int = 0

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> ProbedCapabilities:
        """Read values from JSON.

        Raises:
            ValueError: for an unknown name or a value of another type.
        """
        hints = typing.get_type_hints(cls)
        clean: dict[str, Any] = {}
        for name, value in values.items():
            hint = hints.get(name)
            if value is None and hint is not None:
                continue  # the probe said no: the default
            if hint in {bool, int, str}:
                legal = type(value) is hint
            else:
                legal = isinstance(value, list) and all(type(v) is int and v > 0 for v in value)
                value = tuple(value) if legal else value
            if hint is None or not legal:
                raise ValueError(f"{name}={value!r} is no answer of a probe")
            clean[name] = value
        return cls(**clean)


def probed_capabilities(
    facts: DeviceFacts,
    twin: int,
    drivers: tuple[Icd, ...] | None,
    folder: Path | None = None,
    limit_s: float = math.inf,
) -> tuple[ProbedCapabilities, dict[str, str]]:
    """Return what the probes say about a device, and the reason for each no.

    Kept in `folder` (the user's cache folder by default); without a usable folder the probes run
    once per process. A file that does not check out is ignored and written again. What was not
    answered within `limit_s` seconds has `NOT_ASKED` for a reason.
    """
    key = _key(facts)
    path = _path(folder or cache_folder.default_folder() / "gpu-capabilities", key)
    if path is not None:
        known = _read(path, key)
        if known is not None:
            return known
    values, reasons, complete = _run(facts, twin, drivers, limit_s)
    probed = ProbedCapabilities.parse(values)
    # A time limit or crash may be a passing trouble of this run, so it is not remembered.
    if path is not None and complete:
        _write(path, key, probed, reasons)
    return probed, reasons


def _run(
    facts: DeviceFacts, twin: int, drivers: tuple[Icd, ...] | None, limit_s: float
) -> tuple[dict[str, Any], dict[str, str], bool]:
    """Run the probes, going on after the one that took the driver down."""
    values: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    skip: list[str] = []
    survived = True
    timeout_s = min(_LIMIT_FACTOR * probe_timeout_s(), limit_s)
    for _ in range(_MAXIMUM_CRASHES):
        asked = {"skip": skip}
        outcome = on_device.run("probing.probes", facts, twin, drivers, asked, timeout_s=timeout_s)
        started = "open"
        for message in outcome.messages:
            if "start" in message:
                started = message["start"]
                continue
            if "missing" in message:
                return values, {"open": message["missing"]}, False
            name = message["probe"]
            values[name] = message["value"]
            skip.append(name)
            if "raised" in message:
                child_process.log_defect(f"probing {facts.name} ({name})", message["raised"])
                reasons[name] = _our_defect(message["raised"])
            elif message["value"] is None:
                reasons[name] = message["why"]
        if outcome.status == "raised":
            reasons[started] = _our_defect(outcome.detail)
        if outcome.status in {"ok", "raised"}:
            return values, reasons, survived and not _may_pass(outcome)
        survived = False
        if outcome.status != "hung" or timeout_s < limit_s:
            reasons[started] = f"the driver {outcome.status} in this probe ({outcome.detail})"
        if timeout_s == limit_s:  # no time for another child
            names = (f.name for f in fields(ProbedCapabilities))
            return values, {n: NOT_ASKED for n in names if n not in values} | reasons, False
        if started == "open" or outcome.status == "failed":
            break
        skip.append(started)
    return values, reasons, False


def _may_pass(outcome: child_process.Outcome) -> bool:
    """Whether the next process may fare better: this one had no memory, open files or library."""
    if outcome.status != "raised":
        return False
    passing: tuple[type[Exception], ...] = (MemoryError, OSError, *OSError.__subclasses__())
    raised = outcome.detail.splitlines()[-1].partition(":")[0]
    return raised in {kind.__name__ for kind in passing}


def _our_defect(raised: str) -> str:
    return f"a defect of polydevice's probe, not of the driver: {raised.splitlines()[-1]}"


def _key(facts: DeviceFacts) -> str:
    return json.dumps([_probes_digest(), *facts.identity, facts.extensions])


@functools.cache
def _probes_digest() -> str:
    """Name what the probes are now: another version of them asks again."""
    folder = Path(__file__).parent
    modules = [folder / f"{name}.py" for name in ("capabilities", *_PROBING_MODULES)]
    return hashlib.sha256(b"".join(path.read_bytes() for path in modules)).hexdigest()


def _path(folder: Path, key: str) -> Path | None:
    if cache_folder.why_unusable(folder):
        return None
    return folder / f"{hashlib.sha256(key.encode()).hexdigest()}.json"


def _read(path: Path, key: str) -> tuple[ProbedCapabilities, dict[str, str]] | None:
    try:
        with path.open("rb") as file:
            content = json.loads(file.read(_FILE_LIMIT_BYTES))
        if content["key"] != key or content["checksum"] != _checksum(content["values"]):
            return None
        return ProbedCapabilities.parse(content["values"]), dict(content["reasons"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _write(path: Path, key: str, probed: ProbedCapabilities, reasons: dict[str, str]) -> None:
    values = {f.name: asdict(probed)[f.name] for f in fields(probed)}
    content = {"key": key, "values": values, "reasons": reasons, "checksum": _checksum(values)}
    with contextlib.suppress(OSError):  # a cache that cannot be written costs only time
        cache_folder.write_atomically(path, json.dumps(content, indent=1).encode())


def _checksum(values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Capabilities(ProbedCapabilities):
    """Everything one may ask about a device: what probes found and what queries answer.

    Attributes:
        unified_memory: device and host share memory, so that buffers need no copy.
        local_memory_is_dedicated: local memory is faster than global; not on CPU devices, where
            staging data in it costs a copy and gains nothing.
        images: images are supported.
        max_work_group_size: work-items of one work-group; a kernel may allow less.
        max_work_item_sizes: largest local size per dimension.
        preferred_vector_width: element type (f32, f16, i8) to elements; 0 if unknown.
        native_vector_width: floats of the hardware's vectors; 0 if unknown. Intel's CPU runtime
            prefers 1, as it puts work-items together, and has 16 with AVX-512.
        compute_units: compute units (execution units, multiprocessors, cores).
        region_alignment_bytes: offsets of regions in a buffer are multiples of it.
        rounds_divisions: f32 quotients and square roots can be had correctly rounded.
        dp4a: the driver names the dot-product instruction (Intel).
        matrix_engine: the driver names a matrix engine (Intel's DPAS).
    """

    unified_memory: bool = False
    local_memory_is_dedicated: bool = False
    images: bool = False
    max_work_group_size: int = 1
    max_work_item_sizes: tuple[int, ...] = (1, 1, 1)
    preferred_vector_width: Mapping[str, int] = field(default_factory=dict)
    native_vector_width: int = 0
    compute_units: int = 1
    region_alignment_bytes: int = 128
    rounds_divisions: bool = False
    dp4a: bool = False
    matrix_engine: bool = False

    @property
    def declared_local_bytes(self) -> int:
        """Local memory that a kernel may declare, which can be more than OpenCL says there is."""
        return DECLARED_LOCAL_BYTES if self.warp_groups_ptx else self.local_memory_bytes

    @property
    def compiles_in_turn(self) -> bool:
        """Whether little more than one program of a process is compiled at a time.

        NVIDIA's driver: 16 programs took 5.0 s of one thread and 3.7 of sixteen. What one process
        has compiled every other finds in the driver's cache.
        """
        return self.inline_ptx

    @property
    def sub_groups(self) -> bool:
        """Whether kernels have sub-group functions (``get_sub_group_size`` and others)."""
        return bool(self.sub_group_sizes)

    @property
    def integer_dot_product(self) -> bool:
        """Whether four 8-bit products and their sum are one instruction, in any spelling."""
        return self.integer_dot_product_khr or self.integer_dot_product_ptx or self.dp4a

    @property
    def matrix_units(self) -> bool:
        """Whether there are matrix units, in any spelling."""
        return self.tensor_cores_ptx or self.matrix_engine


def capabilities(probed: ProbedCapabilities, facts: DeviceFacts) -> Capabilities:
    """Combine the probes' answers with what the driver says."""
    features = facts.feature_capabilities_intel
    return Capabilities(
        **{f.name: getattr(probed, f.name) for f in fields(probed)},
        unified_memory=bool(facts.unified_memory),
        local_memory_is_dedicated=facts.local_memory_kind == 1,
        images=bool(facts.image_support),
        max_work_group_size=facts.max_work_group_size,
        max_work_item_sizes=facts.max_work_item_sizes,
        preferred_vector_width={
            "f32": facts.preferred_vector_width_float,
            "f16": facts.preferred_vector_width_half,
            "i8": facts.preferred_vector_width_char,
        },
        native_vector_width=facts.native_vector_width_float,
        compute_units=facts.max_compute_units,
        region_alignment_bytes=max(1, facts.address_alignment_bits // 8),
        rounds_divisions=bool(facts.single_precision & _ROUNDS_DIVISIONS),
        dp4a=bool(features & 1),
        matrix_engine=bool(features & 2),
    )
