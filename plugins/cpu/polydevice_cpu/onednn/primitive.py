"""Primitive: one compiled operation; what layouts it wants, and how it is executed."""

from __future__ import annotations

import ctypes as c
from collections.abc import Callable, Mapping
from functools import partial

from polydevice.errors import InferenceError
from polydevice_cpu.onednn import openmp
from polydevice_cpu.onednn.constants import Arg, Query, Status
from polydevice_cpu.onednn.descriptor import OPAQUE, Descriptor, required
from polydevice_cpu.onednn.engine import MemoryObject, aligned, engine, stream


class _ExecArg(c.Structure):
    _fields_ = [("arg", c.c_int), ("memory", c.c_void_p)]


class Primitive:
    """A primitive and what its descriptor answers.

    Made by the functions of `polydevice_cpu.onednn.primitives`. Executing it is safe from several
    threads at once, each with its own memory and scratchpad.
    """

    __slots__ = (
        "_description",
        "_descriptors",
        "_library",
        "handle",
        "implementation",
        "is_proved",
        "kind",
        "threads",
    )

    def __init__(self, description: c.c_void_p, kind: str) -> None:
        self._library = required()
        self._description = description
        self._descriptors: dict[tuple[Query, int], Descriptor] = {}
        self.kind = kind.removesuffix("_forward")
        text = c.c_char_p()
        self._library.call("primitive_desc_query", description, Query.IMPL_INFO, 0, c.byref(text))
        self.implementation = (text.value or b"").decode()
        self.threads = openmp.functions()[0]()  # how many it is made for and has to run with
        self.is_proved = False  # `polydevice_cpu.proof` says so
        self.handle: c.c_void_p | None = None

    @classmethod
    def create(cls, kind: str, *arguments: object) -> Primitive | None:
        """Ask for a primitive of this kind; None if oneDNN has no implementation.

        Args:
            kind: what stands before ``_primitive_desc_create`` in the C function's name.
            arguments: the C function's arguments after the engine.
        """
        description = required().create_if_supported(
            f"{kind}_primitive_desc_create", engine(), *arguments
        )
        return None if description is None else cls(description, kind)

    @property
    def is_reference(self) -> bool:
        """Whether this is oneDNN's plain-loop code: minutes instead of ms for heavy operations."""
        return self.implementation.startswith("ref")

    def compile(self) -> Primitive:
        """Generate the code (milliseconds; oneDNN caches it) and return self."""
        if self.handle is None:
            with openmp.threads(self.threads):
                self.handle = self._library.create("primitive_create", self._description)
        return self

    def descriptor(self, query: Query, index: int = 0) -> Descriptor:
        """Return the layout the primitive chose for an argument."""
        known = self._descriptors.get((query, index))
        if known is None:
            known = self._descriptors[query, index] = Descriptor.clone(self._address(query, index))
        return known

    def _address(self, query: Query, index: int) -> int:
        return self._library.value("primitive_desc_query_md", self._description, query, index)

    def given(self, src: Descriptor, dst: Descriptor) -> Primitive:
        """Say which layouts it was made for, so that they need not be read; return self."""
        for query, descriptor in ((Query.SRC, src), (Query.DST, dst)):
            if descriptor.layout != OPAQUE:  # else oneDNN chose
                self._descriptors[query, 0] = descriptor
        return self

    def share(self, other: Primitive) -> None:
        """Take over what was read of another primitive, where it is the same.

        Comparing takes some 3 us, reading a descriptor and its layout 25 us.
        """
        for place, known in other._descriptors.items():
            if place not in self._descriptors and known.is_at(self._address(*place)):
                self._descriptors[place] = known

    @property
    def src(self) -> Descriptor:
        """Layout of the (first) source."""
        return self.descriptor(Query.SRC)

    @property
    def weights(self) -> Descriptor:
        """Layout of the weights."""
        return self.descriptor(Query.WEIGHTS)

    @property
    def has_weights(self) -> bool:
        """Whether it multiplies the source by weights (of recurrent layers these are several)."""
        return self.kind in ("convolution", "deconvolution", "matmul")

    @property
    def bias_shape(self) -> tuple[int, ...]:
        """Sizes of the bias; only for primitives made with one."""
        return self.descriptor(Query.WEIGHTS, 1).shape

    @property
    def dst(self) -> Descriptor:
        """Layout of the destination."""
        return self.descriptor(Query.DST)

    @property
    def scratchpad_bytes(self) -> int:
        """Size of the scratchpad that must be passed on execution."""
        address = self._address(Query.SCRATCHPAD, 0)
        return self._library.value("memory_desc_get_size", address) if address else 0

    @property
    def scratchpad(self) -> Descriptor:
        """Layout of the scratchpad; only where `scratchpad_bytes` is not 0."""
        return self.descriptor(Query.SCRATCHPAD)

    def bind(self, arguments: Mapping[int, MemoryObject]) -> Callable[[], int]:
        """Return a call that executes on these memory objects and returns a status, 0 for success.

        Everything is prepared: the call costs about 0.7 us besides the computation. The caller
        keeps the data alive and sees to the number of threads; the call keeps the memory objects.
        """
        self.compile()
        array = (_ExecArg * len(arguments))()
        for slot, (index, memory) in zip(array, arguments.items(), strict=True):
            slot.arg, slot.memory = index, memory.handle
        call = partial(
            self._library.execute, self.handle, stream(), len(array), c.cast(array, c.c_void_p)
        )
        call.keep = (self, array, tuple(arguments.values()))  # type: ignore[attr-defined]
        return call

    def __del__(self) -> None:
        if hasattr(self, "handle"):
            if self.handle is not None:
                self._library.destroy("primitive_destroy", self.handle)
            self._library.destroy("primitive_desc_destroy", self._description)


def execution_error(what: str, status: int) -> InferenceError:
    """Return the exception for a bound call of `what` that returned `status`."""
    known = {s.value: s.name.lower() for s in Status}
    return InferenceError(f"{what}: oneDNN failed with {known.get(status, status)}")


def run_once(primitive: Primitive, arguments: Mapping[int, MemoryObject]) -> None:
    """Execute a primitive outside any plan (packing weights at load, mostly)."""
    all_arguments = dict(arguments)
    if primitive.scratchpad_bytes:
        buffer = aligned(primitive.scratchpad_bytes)
        all_arguments[Arg.SCRATCHPAD] = MemoryObject(primitive.scratchpad, buffer.ctypes.data)
    call = primitive.bind(all_arguments)
    with openmp.threads(primitive.threads):
        status = call()
    if status:
        raise execution_error(primitive.implementation, status)
