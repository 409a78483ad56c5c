"""GuardedPlan: a bound plan of the CPU device whose memory lies between guard pages."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from polydevice_cpu.onednn.engine import address_of
from polydevice_cpu.plan.binding.binder import Binder
from polydevice_cpu.plan.binding.bound import BoundPlan
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.binding.workspace import Workspace
from polydevice_cpu.plan.plan import Plan
from polydevice_cpu.plan.value import Kind, Storage
from tests.cpu.proved import unproved
from tests.guard_pages import POISON, guarded


class GuardedBinder(Binder):
    """Every storage is a piece of memory of its own."""

    side = ""

    def __init__(self, plan: Plan, context: Context, workspace: Workspace) -> None:
        self.arena_places: list[np.ndarray] = []
        super().__init__(plan, context, workspace)

    def home(self, storage: Storage) -> np.ndarray | None:
        storage = storage.root
        if id(storage) not in self._homes:
            if storage.kind is Kind.ARENA:
                self._homes[id(storage)] = guarded(self.side, storage.size_bytes)
                self.arena_places.append(self._homes[id(storage)])
            elif storage.kind is Kind.CONSTANT and storage.array is not None:
                content = storage.array.reshape(-1).view(np.uint8)
                self._homes[id(storage)] = guarded(self.side, content.size)
                self._homes[id(storage)][:] = content
        return super().home(storage)

    def start(self, storage: Storage) -> int | None:
        home = self.home(storage)
        return None if home is None else address_of(home)


class GuardedPlan(BoundPlan):
    """A plan so bound, step by step; callers' arrays are copied in and out."""

    def __init__(
        self, side: str, plan: Plan, context: Context, workspace: Workspace, alone: object = None
    ) -> None:
        del alone  # another plan, whose memory would not lie between guard pages
        self._binds = type("Guarded", (GuardedBinder,), {"side": side})
        self._side = side
        self._given: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._wanted: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        assert not list(unproved(plan))
        super().__init__(plan, context, workspace)

    def _table_of(self, plan: Plan) -> None:
        """None: what a table is told of lies in one arena."""

    def set_input(self, index: int, array: np.ndarray, *, is_own: bool = False) -> None:
        super().set_input(index, self._placed(self._given, index, array), is_own=is_own)

    def set_output(self, index: int, array: np.ndarray, *, is_own: bool = False) -> None:
        super().set_output(index, self._placed(self._wanted, index, array), is_own=is_own)

    def _placed(self, places: dict, index: int, array: np.ndarray) -> np.ndarray:
        places.pop(index, None)
        if array.dtype.hasobject:
            return array
        place = guarded(self._side, array.nbytes).view(array.dtype).reshape(array.shape)
        places[index] = (array, place)
        return place

    def run(self) -> None:
        self._between_copies(super().run)

    def run_marked(self) -> list[int]:
        return self._between_copies(super().run_marked)

    def _between_copies(self, run: Callable) -> object:
        for place in (*self._binder.arena_places, *(place for _, place in self._wanted.values())):
            place.reshape(-1).view(np.uint8)[:] = POISON
        for array, place in self._given.values():
            place[...] = array
        result = run()
        for array, place in self._wanted.values():
            array[...] = place
        return result
