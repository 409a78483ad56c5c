"""KernelObjects: who releases OpenCL's kernel objects."""

from __future__ import annotations

from polydevice_gpu.cl import library


class KernelObjects:
    """OpenCL kernel objects that are released together, when nobody has this any longer.

    One weak reference for each took 3 µs and four objects for Python to look through.
    """

    def __init__(self) -> None:
        """Begin without any."""
        self._pointers: list[int] = []
        library.release_with(self, _release_kernels, self._pointers)

    def take(self, pointer: int) -> int:
        """Take over a kernel object; returns it."""
        self._pointers.append(pointer)
        return pointer

    def give(self) -> int | None:
        """Let go of the latest kernel object, for another owner; None where there is none."""
        try:
            return self._pointers.pop()
        except IndexError:
            return None


def _release_kernels(pointers: list[int]) -> None:
    release = library.library().clReleaseKernel
    for pointer in pointers:
        release(pointer)
