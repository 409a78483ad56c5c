"""What a driver says of a compiled kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from polydevice_gpu.cl import library

_KERNEL_NUM_ARGS = 0x1191
_WORK_GROUP_SIZE, _REQUIRED_SIZE, _LOCAL_MEM_SIZE = 0x11B0, 0x11B1, 0x11B2


@dataclass(frozen=True)
class KernelFacts:
    """What a driver says of a kernel on a device; asked once for all layers that run it.

    Attributes:
        argument_count: how many arguments it takes.
        max_work_group_size: work-items of one work-group.
        local_memory_bytes: what it declares.
    """

    argument_count: int
    max_work_group_size: int
    local_memory_bytes: int

    @classmethod
    def of(cls, kernel: int, device: int) -> KernelFacts:
        """Ask a driver about a kernel object."""
        cl = library.library()
        arguments = library.info_bytes(cl.clGetKernelInfo, kernel, _KERNEL_NUM_ARGS)

        def fact(code: int) -> bytes:
            return library.info_bytes(cl.clGetKernelWorkGroupInfo, kernel, device, code) or b""

        # NVIDIA says 256 of a kernel in PTX that has 384 for its required size.
        required = math.prod(np.frombuffer(fact(_REQUIRED_SIZE), np.uintp).tolist())
        return cls(
            int.from_bytes(arguments or b"", "little"),
            max(int.from_bytes(fact(_WORK_GROUP_SIZE), "little"), required),
            int.from_bytes(fact(_LOCAL_MEM_SIZE), "little"),
        )
