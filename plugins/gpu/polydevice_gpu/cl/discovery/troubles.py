"""What drivers are known to get wrong, and what polydevice does about it; found by running them.

`polydevice doctor` names those of the drivers at hand, docs/drivers.md all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from polydevice_gpu.cl.discovery.facts import DeviceFacts


@dataclass(frozen=True)
class Trouble:
    """One defect or oddity of a driver.

    Attributes:
        driver: name and versions, for people.
        platform: text in the platform's name, lower case.
        first: the first version that it was seen in, as numbers.
        before: the first version without it; empty if it is in all that were tried.
        wrong: what the driver does.
        answer: what polydevice does about it, with `wrong` a sentence: "polydevice …".
        fix: what a user can do; empty when there is nothing to do.
        kind: kind of device that it concerns; all if empty.
    """

    driver: str
    platform: str
    first: tuple[int, ...]
    before: tuple[int, ...]
    wrong: str
    answer: str
    fix: str = ""
    kind: str = ""

    def concerns(self, device: DeviceFacts) -> bool:
        """Whether a device's driver is of these versions."""
        if self.platform not in device.platform_name.lower():
            return False
        if self.kind and device.kind != self.kind:
            return False
        version = _numbers(device.driver_version) or _numbers(device.platform_version)
        return self.first <= version and not (self.before and version >= self.before)


def _numbers(text: str) -> tuple[int, ...]:
    """Return the first version in a text: (3, 1) of ``3.1+debian``."""
    found = re.search(r"\d+(?:\.\d+)+", text)
    return tuple(map(int, found.group().split("."))) if found else ()


def mend(platform_name: str) -> str:
    """Return what to do about a device of a platform that runs nothing."""
    if _POCL in platform_name.lower():
        return "update it, or name a writable folder for what it compiles in POCL_CACHE_DIR"
    return "update its driver"


_POCL, _INTEL_CPU, _OCLGRIND, _NVIDIA = (
    "portable computing language",
    "intel(r) opencl",
    "oclgrind",
    "nvidia",
)

TROUBLES: tuple[Trouble, ...] = (
    Trouble(
        *("PoCL 1.8", _POCL, (1,), (3,)),
        "compiles nothing on processors that its LLVM does not know (unknown target CPU 'generic')",
        "says so where a network is loaded, and why",
        "install a newer one, or Intel's runtime for CPUs from PyPI (intel-opencl-rt)",
    ),
    Trouble(
        *("PoCL 3.1", _POCL, (3, 1), (4,)),
        "crashes on clEnqueueCopyBufferRect with a sub-buffer",
        "copies blocks between whole buffers, by offset",
    ),
    Trouble(
        *("PoCL 3.1", _POCL, (3, 1), (4,)),
        "crashes when a launch asks for more local memory than there is",
        "counts it and refuses the launch",
    ),
    Trouble(
        *("PoCL 6.0", _POCL, (6,), ()),
        "ends the process at instructions that the machine has and its target processor lacks",
        "asks whether it compiles for AVX-512 VNNI first",
    ),
    Trouble(
        *("PoCL 3.1 and 6.0", _POCL, (3, 1), ()),
        "computes some functions wrong whose loops have barriers (the steps of recurrent layers)",
        "has barriers in kernels only",
    ),
    Trouble(
        *("PoCL 3.1", _POCL, (3, 1), (4,)),
        "crashes on vload_half8 at addresses that are not aligned to the whole vector",
        "puts such vectors together from single values",
    ),
    Trouble(
        *("PoCL 6.0", _POCL, (6,), ()),
        "claims sub-groups of up to 512 items, which sum memory behind smaller work-groups",
        "counts on sizes up to 64 only, each tried",
    ),
    Trouble(
        *("PoCL 6.0", _POCL, (6,), ()),
        "refuses copies of no bytes (CL_INVALID_VALUE), as OpenCL allows",
        "hands over none",
    ),
    Trouble(
        *("PoCL 6.0", _POCL, (6,), ()),
        "writes over memory where a sub-group ends before others of its work-group do",
        "lets sub-groups end together on processors",
    ),
    Trouble(
        *("PoCL 6.0", _POCL, (6,), (7,)),
        "ends the process on some kernels: LLVM 18's InstCombine finds no fixpoint",
        "writes those that were met (chains of remainders) so that it does",
        "set POCL_WORK_GROUP_METHOD=cbs if a program ends with that message, and report it",
    ),
    Trouble(
        *("PoCL 5.0", _POCL, (5,), (6,)),
        "computes wrong, or ends the process, where nothing is optimised (-cl-opt-disable)",
        "never asks for that; its tests do, but not there",
    ),
    Trouble(
        *("PoCL 7.1", _POCL, (7,), ()),
        "computes wrong, or ends the process, where nothing is optimised (-cl-opt-disable)",
        "never asks for that; its tests do, but not there",
    ),
    Trouble(
        *("PoCL 7.1", _POCL, (7,), ()),
        "computes normalisations wrong whose rows, side by side, work-groups share (MVN)",
        "gives processors, whose local memory is no faster, another kernel",
    ),
    Trouble(
        *("PoCL", _POCL, (0,), ()),
        "compiles nothing where it cannot write to its cache folder (~/.cache/pocl)",
        "says so, and keeps no answer of a probe that was asked then",
        "name a folder that you can write in POCL_CACHE_DIR",
    ),
    Trouble(
        *("PoCL", _POCL, (0,), ()),
        "may crash or refuse a program where several processes fill one empty cache folder at once "
        "(one of three died once; none of 66 that tried it again; users of PoCL report it, too)",
        "has no part in that folder; what CACHE_DIR keeps is compiled by one process",
        "let one process load the network first, or give each its own POCL_CACHE_DIR",
    ),
    Trouble(
        *("PoCL", _POCL, (0,), ()),
        "compiles on the processor: the first load of a network takes seconds to a minute",
        "keeps compiled kernels where CACHE_DIR says",
        "set CACHE_DIR to load a network in a second the next time",
    ),
    Trouble(
        *("Intel's runtime for CPUs 2026.2", _INTEL_CPU, (2026,), ()),
        "keeps memory of every replay of a command buffer (4.7 kB for two launches)",
        "finds that with a probe and does not use them there",
        kind="CPU",
    ),
    Trouble(
        *("Intel's runtime for CPUs 2026.2", _INTEL_CPU, (2026,), ()),
        "crashes the process where a function has barriers",
        "has barriers in kernels only",
        kind="CPU",
    ),
    Trouble(
        *("Intel's runtime for CPUs", _INTEL_CPU, (0,), ()),
        "has no device in a process where an older TBB was loaded first, as OpenVINO's is",
        "cannot mend that from inside such a process",
        "LD_PRELOAD its own libtbb.so.12 in programs that import openvino",
        "CPU",
    ),
    Trouble(
        *("Intel's runtime for CPUs", _INTEL_CPU, (0,), ()),
        "offers half arithmetic where the processor has none, and emulates it slowly",
        "computes in f32 unless the driver prefers half",
        kind="CPU",
    ),
    Trouble(
        *("Oclgrind 21.10", _OCLGRIND, (0,), ()),
        "interprets kernels, far slower than they run, and cannot run the generic address space",
        "compiles as OpenCL C 1.2 there",
        "use it to check kernels only",
    ),
    Trouble(
        *("NVIDIA", _NVIDIA, (0,), ()),
        "has no sub-group functions and no matrix functions in OpenCL C",
        "uses inline PTX for them where a probe computed the right numbers",
    ),
    Trouble(
        *("NVIDIA", _NVIDIA, (0,), ()),
        "says of Hopper that groups have 48 KiB of local memory, where kernels may declare 224",
        "declares 96 for products of few work-groups, where a probe of 192 was right",
    ),
    Trouble(
        *("NVIDIA", _NVIDIA, (0,), ()),
        "ends the context when a kernel reaches outside of its memory (error -9999)",
        "says so, and opens the device again for the next network",
    ),
)
