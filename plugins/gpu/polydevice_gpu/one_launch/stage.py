"""Stage: one launch of a plan on its way into a stretch that runs as one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from polydevice.dataclass import dataclass
from polydevice_gpu import cl
from polydevice_gpu.graph import Memory, Place, Value
from polydevice_gpu.kernels.launch import Argument, Launch, Local, Scratch, Weights
from polydevice_gpu.one_launch.function import Function, lines_with, type_of

_ALIGNMENT = 128
"""At least, of what a work-group has of local memory for one call."""
_ARRAY = re.compile(r"^[^#\n]*\bLOCAL_ARRAY\(\w+, \w+, .*?, (\d+)\);", re.MULTILINE)
_SINGLE = re.compile(r"^[^#\n]*\bLOCAL_ARRAY\(\w+, \w+, 1, , (\d+)\);", re.MULTILINE)


@dataclass(frozen=True, eq=False)
class Stage:
    """A launch, what it needs and what it touches.

    Attributes:
        name: of the layer.
        launch: what it would launch.
        kernel: the kernel, built.
        reads: pieces of memory.
        writes: likewise.
        bytes: how much it reads and writes, weights included.
        value_bytes: likewise, without them.
        constants: positions of arguments that are weights.
    """

    name: str
    launch: Launch
    kernel: cl.Kernel
    reads: frozenset[object]
    writes: frozenset[object]
    bytes: int
    value_bytes: int
    constants: tuple[int, ...]

    @classmethod
    def of(
        cls,
        name: str,
        launch: Launch,
        kernel: cl.Kernel,
        scratch: Mapping[Scratch, Memory],
        places: Mapping[Memory, int],
    ) -> Stage:
        """Describe a launch.

        Args:
            name: of the layer.
            launch: with its body.
            kernel: that it launches.
            scratch: the layer's scratch memory.
            places: of the arena.
        """
        reads: set[object] = set()
        writes: set[object] = set()
        constants = []
        assert launch.body is not None
        pairs = zip(launch.body.parameters, launch.arguments, strict=True)
        for position, (parameter, argument) in enumerate(pairs):
            if isinstance(argument, Weights):
                constants.append(position)
            memory = memory_of(argument, scratch)
            if memory is None:
                continue
            key = places.get(memory, memory)
            (reads if "const " in type_of(parameter)[0] else writes).add(key)
        sizes = touched_bytes(launch, scratch), value_bytes(launch, scratch)
        return cls(
            *(name, launch, kernel, frozenset(reads), frozenset(writes), *sizes, tuple(constants))
        )

    def waits_for(self, other: Stage) -> bool:
        """Whether the other one, which is earlier, must have ended before this one begins."""
        mine = self.reads | self.writes
        return not other.writes.isdisjoint(mine) or not other.reads.isdisjoint(self.writes)

    @property
    def function(self) -> Function:
        """The kernel as a function."""
        return Function.of(self.launch)

    @property
    def local_bytes(self) -> int:
        """Local memory that one call takes at most, its arguments included.

        It may be more than the device has by what the driver counts for alignment.
        """
        assert self.launch.body is not None
        declared = lines_with(self.launch.body.text, "LOCAL_ARRAY(")
        alignments = [int(found) for found in _ARRAY.findall(declared)]
        # Drivers count some bytes for kernels that have none.
        own = self.kernel.local_memory_bytes if alignments else 0
        if not own and not self.local_arguments_bytes:
            return 0
        # Each array but the first may lie behind what is aligned to less, and compilers do not
        # always count single variables.
        total = own + self.local_arguments_bytes + sum(alignments[1:])
        total += sum(map(int, _SINGLE.findall(declared)))
        alignment = max([_ALIGNMENT, *alignments])
        return -(-total // alignment) * alignment

    @property
    def local_arguments_bytes(self) -> int:
        """Local memory that arguments stand for, each from a place of its own."""
        return sum(size for _, size in self.local_places())

    def local_places(self) -> Iterator[tuple[int, int]]:
        """Return position and bytes of each argument in local memory."""
        for position, argument in enumerate(self.launch.arguments):
            if isinstance(argument, Local):
                yield position, -(-argument.bytes // _ALIGNMENT) * _ALIGNMENT

    @property
    def groups(self) -> tuple[int, int, int]:
        """Work-groups of the launch in three dimensions."""
        x, y, z = (*self.launch.global_size, 1, 1)[:3]
        a, b, c = self.function.local
        return x // a, y // b, z // c


def touched_bytes(launch: Launch, scratch: Mapping[Scratch, Memory]) -> int:
    """Return how much a launch reads and writes, weights included."""
    size = value_bytes(launch, scratch)
    for argument in launch.arguments:
        if isinstance(argument, Weights):
            assert argument.value.constant is not None
            size += argument.value.constant.nbytes
    return size


def value_bytes(launch: Launch, scratch: Mapping[Scratch, Memory]) -> int:
    """Return how much a launch reads and writes of values."""
    found = (memory_of(argument, scratch) for argument in launch.arguments)
    return sum(memory.bytes for memory in found if memory is not None)


def memory_of(argument: Argument, scratch: Mapping[Scratch, Memory]) -> Memory | None:
    """Return the memory that an argument stands for, unless it is a constant."""
    if isinstance(argument, Scratch):
        return scratch[argument]
    memory = argument.memory if isinstance(argument, Value) else argument
    if not isinstance(memory, Memory) or memory.place is Place.WEIGHTS:
        return None
    return memory
