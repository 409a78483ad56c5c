"""FilledStretch: launches of a plan that was filled in, as arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np
import numpy.typing as npt

from polydevice.symbolic_size import Number, is_symbolic
from polydevice_gpu import cl
from polydevice_gpu.graph import Memory, Place, Value
from polydevice_gpu.kernels.launch import Argument, Computed, Launch, Local, Scratch, Weights
from polydevice_gpu.runtime.plan import Step, argument_of
from polydevice_gpu.runtime.weights import WeightStore

_HANDLE_BYTES = 8

Region = Callable[[Memory], cl.Buffer]


class StretchTable:
    """Launches of neighbouring steps of a template, for any sizes.

    Equal numbers stand in one word, and so does the handle of a piece of memory, wherever kernels
    want it.

    Attributes:
        steps: with formulas.
        memories: word → the piece of memory whose handle it has, as the template knows it.
        uses: word → launch and position of each argument that it is.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        index: Mapping[str, int],
        constants: AbstractSet[Value],
    ) -> None:
        """Find out what differs.

        Args:
            steps: whose sizes are formulas.
            index: name of a formula → its place among the numbers.
            constants: values that are the same for all sizes.
        """
        self.steps = steps
        self.memories: dict[int, Memory] = {}
        self.uses: dict[int, list[tuple[int, int]]] = {}
        self._index = index
        self._constants = constants
        self._words: dict[Any, int] = {}
        self._numbers: dict[np.dtype[Any], list[tuple[int, int]]] = {}
        self._arguments: list[cl.TableArgument] = []
        self._table: cl.LaunchTable | None = None
        launches = [launch for step in steps for launch in step.launches]
        self._sizes = np.ones((len(launches), 2, 3), np.intp)
        symbolic: list[tuple[int, int]] = []
        scratch = {s: memory for step in steps for s, memory in step.scratch.items()}
        for number, launch in enumerate(launches):
            self._add_sizes(number, launch, symbolic)
            for position, argument in enumerate(launch.arguments):
                if self._varies(argument):
                    self._add(number, position, argument, scratch)
        self._size_places = np.array([place for place, _ in symbolic], np.intp)
        self._size_numbers = [number for _, number in symbolic]
        self._columns = [
            (
                kind,
                np.array([w for w, _ in pairs], np.intp) * (8 // kind.itemsize),
                [n for _, n in pairs],
            )
            for kind, pairs in self._numbers.items()
        ]

    def _add_sizes(self, number: int, launch: Launch, symbolic: list[tuple[int, int]]) -> None:
        for row, sizes in enumerate((launch.global_size, launch.local_size or ())):
            for axis, size in enumerate(sizes):
                if is_symbolic(size):
                    symbolic.append((number * 6 + row * 3 + axis, self._place_of(size)))
                else:
                    self._sizes[number, row, axis] = size

    def _varies(self, argument: Argument) -> bool:
        """Whether plans do not share an argument."""
        if isinstance(argument, Local):
            return is_symbolic(argument.bytes)
        if isinstance(argument, Value) and argument in self._constants:
            return False
        return not isinstance(argument, (np.generic, Weights))

    def _add(
        self, launch: int, position: int, argument: Argument, scratch: Mapping[Scratch, Memory]
    ) -> None:
        """Note an argument that differs, and the word that it stands in."""
        if isinstance(argument, Computed):
            kind = np.dtype(argument.kind)
            word = self._number(argument.number, kind)
            size_bytes = kind.itemsize
        elif isinstance(argument, Local):
            word, size_bytes = self._number(argument.bytes, np.dtype(np.uint64)), 0
        else:
            known = scratch[argument] if isinstance(argument, Scratch) else argument
            memory = known.memory if isinstance(known, Value) else known
            assert isinstance(memory, Memory), f"{argument} has no memory"
            word, size_bytes = self._words.setdefault(memory, len(self._words)), _HANDLE_BYTES
            self.memories[word] = memory
        self.uses.setdefault(word, []).append((launch, position))
        self._arguments.append(cl.TableArgument(launch, position, size_bytes, word))

    def _number(self, size: Number, kind: np.dtype[Any]) -> int:
        place = self._place_of(size)
        found = self._words.get((kind, place))
        if found is None:
            found = self._words[kind, place] = len(self._words)
            self._numbers.setdefault(kind, []).append((found, place))
        return found

    def _place_of(self, size: Number) -> int:
        return self._index[size.name]

    def filled(
        self, numbers: Sequence[Number], memory_of: Callable[[Memory], Memory]
    ) -> FilledStretch:
        """Return the launches with these numbers, and with the memory that a plan has."""
        words = np.zeros(len(self._words), np.uint64)
        for kind, places, chosen in self._columns:
            words.view(kind)[places] = np.array([numbers[n] for n in chosen], kind)
        sizes = self._sizes.copy()
        if self._size_numbers:
            sizes.reshape(-1)[self._size_places] = [numbers[n] for n in self._size_numbers]
        memories = {word: memory_of(memory) for word, memory in self.memories.items()}
        return FilledStretch(self, words, sizes, memories)

    def table(self, weights: WeightStore, region: Region) -> cl.LaunchTable:
        """Return what the launches have in common, with what is the same of their arguments.

        To be called by one thread at a time.
        """
        if self._table is None:
            launches, drafts = [], []
            for step in self.steps:
                for launch, kernel in zip(step.launches, step.kernels, strict=True):
                    same = {
                        position: argument_of(argument, step.scratch, weights, region)
                        for position, argument in enumerate(launch.arguments)
                        if not self._varies(argument)
                    }
                    drafts.append(cl.Draft(kernel, same))
                    name = f"{kernel.name} of {step.node.name}"
                    dimensions, local = len(launch.global_size), launch.local_size
                    launches.append(cl.TableLaunch(kernel, name, dimensions, local is not None))
            self._table = cl.LaunchTable(launches, drafts, self._arguments)
        return self._table


class FilledStretch:
    """Launches of neighbouring steps, with numbers.

    Attributes:
        table: what other plans have, too.
        memories: word → the piece of memory whose handle it has.
    """

    def __init__(
        self,
        table: StretchTable,
        words: npt.NDArray[np.uint64],
        sizes: npt.NDArray[np.intp],
        memories: dict[int, Memory],
    ) -> None:
        """Take over what was filled in; see `StretchTable.filled`."""
        self.table = table
        self.memories = memories
        self._words = words
        self._sizes = sizes

    def bind(self, device: cl.Device, weights: WeightStore, region: Region) -> cl.FilledLaunches:
        """Return the launches with memory; see `StretchTable.table`.

        Args:
            device: the device.
            weights: makes constants that depend on sizes.
            region: returns the buffer of a piece of memory that is no constant.
        """
        table = self.table.table(weights, region)
        words, buffers = self._words.copy(), {}
        for word, memory in self.memories.items():
            if memory.place is Place.WEIGHTS:
                assert memory.data is not None
                buffer = weights.buffer(memory.data, memory.storage, None)
            else:
                buffer = region(memory)
            buffers[word] = buffer
        if buffers:
            words[list(buffers)] = [buffer.pointer for buffer in buffers.values()]
        return cl.FilledLaunches(device, table, self._sizes, words, buffers)
