"""Traced: steps that are filled in with symbolic sizes."""

from __future__ import annotations

from typing import Any

from polydevice.symbolic_size import UntraceableError
from polydevice_cpu.onednn.ahead import Ahead
from polydevice_cpu.onednn.descriptor import Descriptor, SymbolicDescriptor
from polydevice_cpu.onednn.primitive import Primitive, SymbolicPrimitive
from polydevice_cpu.plan.filling.filled import Filled
from polydevice_cpu.plan.filling.recipe import StorageForm, ValueForm
from polydevice_cpu.plan.tables.template import Contents
from polydevice_cpu.plan.value import Storage, Value

WORD_BYTES = 8


class _NoContext:
    """In the place of a request's context, for what is the same for all of them."""

    def __getattr__(self, name: str) -> Any:
        raise UntraceableError(f"it asks for a request's {name}")


NO_CONTEXT: Any = _NoContext()


class Traced(Filled):
    """Steps that are filled in with symbolic sizes.

    Attributes:
        read: sizes that steps read, which are constants of a plan of numbers.
        places: where those of a storage begin.
    """

    def __init__(self, numbers: list[Any], contents: Contents) -> None:
        super().__init__(numbers, *contents, Ahead(), may_be_in_strips=True)
        self.read: list[Any] = []
        self.places: dict[Storage, int] = {}

    def forget(self) -> None:
        """Forget all but storages, so that who asks next notes what it decides by itself."""
        self._values = [None] * len(self._values)
        for known in (self._codes, self._are_means, self._descriptors):
            known.clear()

    def _made_storage(self, form: StorageForm) -> Storage:
        given, place, _, dtype = form
        if place < 0 or given.array is None:
            return super()._made_storage(form)
        numbers = self._numbers[place]
        if dtype.kind not in "iu" or (dtype.itemsize != WORD_BYTES and len(numbers) > 1):
            raise UntraceableError("sizes are read that are no words")
        made = Storage(given.kind, WORD_BYTES * len(numbers))
        self.places[made] = len(self.read)
        self.read += numbers
        return made

    def _primitive(self, given: Primitive) -> Primitive:
        if isinstance(given, SymbolicPrimitive):
            raise UntraceableError("oneDNN is asked for each size")
        return given

    def _is_mean(self, given: Primitive, place: int) -> bool:
        """Whether NumPy computes it; machine code does where there is some."""
        return not self.has_code(place) and super()._is_mean(given, place)

    def _made_descriptor(self, given: SymbolicDescriptor) -> Descriptor:
        if isinstance(given.source, tuple) and given.strides is not None:
            shape, strides = self._sizes(given)  # as oneDNN answered for the template
            return Descriptor.strided(shape, strides, given.data_type)
        return super()._made_descriptor(given)

    def _made_value(self, form: ValueForm) -> Value:
        if form.is_packed:
            raise UntraceableError("a constant is packed for each size")
        return super()._made_value(form)
