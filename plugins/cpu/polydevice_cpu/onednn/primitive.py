"""Primitive: one compiled operation; what layouts it wants, and how it is executed."""

from __future__ import annotations

import ctypes as c
import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache, partial
from struct import Struct
from typing import Any, Union
from weakref import WeakValueDictionary

from polydevice.errors import InferenceError
from polydevice.locks import Lock
from polydevice.symbolic_size import NoFormulaError, is_symbolic, number_of
from polydevice.symbolic_trace import current_trace
from polydevice_cpu.onednn import openmp
from polydevice_cpu.onednn.attributes import Attributes, Binary, Eltwise, PostOp
from polydevice_cpu.onednn.constants import Algorithm, Arg, DataType, Query, Status
from polydevice_cpu.onednn.defects import passes_over
from polydevice_cpu.onednn.descriptor import (
    OPAQUE,
    Descriptor,
    SymbolicDescriptor,
    dims,
    number_descriptor,
    required,
)
from polydevice_cpu.onednn.engine import MemoryObject, aligned, stream
from polydevice_cpu.onednn.handles import Handles


class _Packed(c.c_char_p):
    """What a primitive is executed on, and what has to live as long as somebody has it."""

    __slots__ = ("alive",)
    alive: tuple[object, ...]


class Execution(partial[int]):
    """A call of `dnnl_primitive_execute`, prepared."""

    @property
    def record(self) -> tuple[int, ...]:
        """The call as of type `machine_code.CALL`; only once the primitive is compiled."""
        primitive, stream_, count, packed = self.args
        address = c.cast(packed, c.c_void_p).value or 0
        return required().execute_address, primitive.value, stream_.value, count, address


Argument = Union[
    Descriptor,
    Attributes,
    "tuple[Descriptor, ...]",
    "tuple[int, ...]",
    int,
    float,
    c.c_void_p,
    None,
]
"""What functions that make primitives take."""

Place = tuple[Query, int]
"""An argument of a primitive, as it is asked for its layout."""
_SRC, _DST = (Query.SRC, 0), (Query.DST, 0)
_PLACES = (_SRC, _DST, (Query.WEIGHTS, 0), (Query.WEIGHTS, 1))
_Key = tuple[Hashable, ...]
_MADE: WeakValueDictionary[_Key, Primitive] = WeakValueDictionary()
_LOCK = Lock()
_NUMBERS = itertools.count()


class Primitive:
    """A primitive and what its descriptor answers; `number` tells it from all others.

    Its `chain` is what it does to each number of its source, if it is a pointwise one, or to each
    sum of products; `epsilon` is what a normalisation of layers adds to variances; `made_of` is
    what `create` was asked for.

    Made by the functions of `polydevice_cpu.onednn.primitives`. Executing it is safe from several
    threads at once, each with its own memory and scratchpad. While it is in use, who asks for the
    same again gets it: layers, plans, requests and networks share it.
    """

    __slots__ = (
        "__weakref__",
        "_asked",
        "_descriptors",
        "_handles",
        "_library",
        "_making",
        "_scratchpad_bytes",
        "chain",
        "epsilon",
        "handle",
        "implementation",
        "is_proved",
        "kind",
        "made_of",
        "number",
        "threads",
    )

    def __init__(self, description: c.c_void_p, kind: str) -> None:
        self._library = required()
        self._handles = Handles(description)
        self.handle = self._handles.primitive
        self._descriptors: dict[Place, Descriptor] = {}
        self._asked: dict[Place, Descriptor] = {}
        self.number = next(_NUMBERS)
        self._scratchpad_bytes: int | None = None
        self.kind = kind.removesuffix("_forward")
        text = c.c_char_p()
        self._library.call("primitive_desc_query", description, Query.IMPL_INFO, 0, c.byref(text))
        self.implementation = (text.value or b"").decode()
        self.threads = openmp.thread_count()  # how many it is made for and has to run with
        self.chain: tuple[PostOp, ...] | None = None
        self.epsilon: float | None = None
        self.made_of: tuple[str, Sequence[Argument]] | None = None
        self.is_proved = False  # `polydevice_cpu.proof` says so
        self._making = Lock()

    @classmethod
    def create(cls, kind: str, *arguments: Argument) -> Primitive | None:
        """Ask for a primitive of this kind; None if oneDNN has no implementation.

        Args:
            kind: what stands before ``_primitive_desc_create`` in the C function's name.
            arguments: the C function's arguments; sizes as a tuple.
        """
        if current_trace() is not None and any(map(is_formula, arguments)):
            witness = cls.create(kind, *map(_of_numbers, arguments))
            return None if witness is None else SymbolicPrimitive(witness, kind, arguments)
        key = _key(kind, arguments)
        if key is not None:
            with _LOCK:
                known = _MADE.get(key)
            if known is not None:
                return known
        description = required().create_if_supported(
            f"{kind}_primitive_desc_create", *map(_passed, arguments)
        )
        if description is None or not passes_over(kind, description, arguments):
            return None
        made = cls(description, kind)
        told = [each.told() if isinstance(each, Attributes) else each for each in arguments]
        made.chain, made.made_of = _chain(kind, arguments), (kind, told)
        if key is None:
            return made
        with _LOCK:
            return _MADE.setdefault(key, made)

    @property
    def is_reference(self) -> bool:
        """Whether this is oneDNN's plain-loop code: minutes instead of ms for heavy operations."""
        return self.implementation.startswith("ref")

    @property
    def is_compiled(self) -> bool:
        """Whether its code is there."""
        return self.handle.value is not None

    def compile(self) -> Primitive:
        """Generate the code (0.05 to 1 ms) and return self.

        Where another thread is at it, wait for that one.
        """
        if not self.is_compiled:
            with self._making, openmp.threads(self.threads):
                if not self.is_compiled:
                    self._handles.compile()
        return self

    def descriptor(self, query: Query, index: int = 0) -> Descriptor:
        """Return the layout the primitive chose for an argument."""
        place = query, index
        known = self._descriptors.get(place)
        if known is None:
            known = self._descriptors[place] = self._read(place)
        return known

    def _read(self, place: Place) -> Descriptor:
        """The layout as oneDNN has it.

        To compare it with one that it may be takes some 4 us, to read it 40.
        """
        asked = self._asked.get(place)
        with self._making:  # which lets go of the descriptor that has it
            address = self._address(*place)
            for known in () if asked is None else asked.likely():
                if known.is_at(address):
                    return known
            read = Descriptor.clone(address, (self.number, *place)).known_by_numbers()
        if asked is not None:
            asked.note_choice(read)
        return read

    def _address(self, query: Query, index: int) -> int:
        """Where a layout is, as long as nobody compiles."""
        description = self._handles.description
        return self._library.value("primitive_desc_query_md", description, query, index)

    def given(
        self,
        src: Descriptor,
        dst: Descriptor,
        weights: Descriptor | None = None,
        bias: Descriptor | None = None,
    ) -> Primitive:
        """Say which layouts it was asked for with, so that they need not be read; return self."""
        for place, descriptor in zip(_PLACES, (src, dst, weights, bias), strict=True):
            if descriptor is None:
                continue
            if descriptor.layout != OPAQUE:
                self._descriptors[place] = descriptor
            else:  # oneDNN chose
                self._asked[place] = descriptor
        return self

    def note(self, given: Mapping[Place, Descriptor], asked: Mapping[Place, Descriptor]) -> None:
        """Say which layouts it was asked for with, and where oneDNN chose."""
        self._descriptors.update(given)
        self._asked.update(asked)

    @property
    def src(self) -> Descriptor:
        """Layout of the (first) source."""
        return self._descriptors.get(_SRC) or self.descriptor(Query.SRC)

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
        return self._descriptors.get(_DST) or self.descriptor(Query.DST)

    @property
    def scratchpad_bytes(self) -> int:
        """Size of the scratchpad that must be passed on execution."""
        if self._scratchpad_bytes is None:
            with self._making:
                address = self._address(Query.SCRATCHPAD, 0)
                size = self._library.value("memory_desc_get_size", address) if address else 0
            self._scratchpad_bytes = size
        return self._scratchpad_bytes

    @property
    def scratchpad(self) -> Descriptor:
        """Layout of the scratchpad; only where `scratchpad_bytes` is not 0."""
        row = Descriptor.dense((self.scratchpad_bytes,), DataType.U8)
        self._asked.setdefault((Query.SCRATCHPAD, 0), row)
        return self.descriptor(Query.SCRATCHPAD)

    def bind(self, arguments: Mapping[int, MemoryObject]) -> Callable[[], int]:
        """Return a call that executes on these memory objects and returns a status, 0 for success.

        The call keeps the memory objects; see `call`.
        """
        handles = [number for at, each in arguments.items() for number in (at, each.handle)]
        return self.call(handles, tuple(arguments.values()))

    def call(self, handles: Sequence[int], kept: object) -> Execution:
        """Return a call that executes on memory objects and returns a status, 0 for success.

        Everything is prepared: the call costs about 0.7 us besides the computation. The caller
        keeps the data alive, sees to the number of threads and, before the first call, to it that
        this is compiled.

        Args:
            handles: an argument's index, the handle of its memory object, the next one's index…
            kept: what keeps the memory objects.
        """
        packed = _Packed(_packing(len(handles) // 2)(*handles))
        packed.alive = self, kept
        return Execution(self._library.execute, self.handle, stream(), len(handles) // 2, packed)


class SymbolicPrimitive(Primitive):
    """A primitive for sizes that are formulas, while a plan with formulas is made.

    Attributes:
        witness: the primitive for the numbers that the sizes have now.
        name, arguments: see `create`.
        layouts: what it was asked for with, by place, so that it need not be read.
        opaque: what it was asked for with where oneDNN chooses.
        answers: what it chose, as formulas.
        claims: what was proved of it; `polydevice_cpu.proof` knows them.
        successor: what takes its place after its layouts have been settled.
    """

    __slots__ = (
        "answers",
        "arguments",
        "claims",
        "layouts",
        "name",
        "opaque",
        "successor",
        "witness",
    )

    def __init__(self, witness: Primitive, name: str, arguments: Sequence[Argument]) -> None:
        self.witness = witness
        self.name = name
        self.arguments = tuple(arguments)
        self.layouts: dict[Place, Descriptor] = {}
        self.opaque: dict[Place, Descriptor] = {}
        self.answers: dict[Place, Descriptor] = {}
        self.claims: list[Any] = []
        self.successor: SymbolicPrimitive | None = None
        self._library, self.kind = witness._library, witness.kind
        self._descriptors = self.layouts
        self._asked = self.opaque
        self.number, self.threads = witness.number, witness.threads
        self.implementation, self.is_proved = witness.implementation, False
        self.chain, self.made_of = _chain(name, arguments), (name, arguments)
        self._scratchpad_bytes = None

    def compile(self) -> Primitive:
        """Generate nothing: what runs is made for numbers."""
        return self

    def descriptor(self, query: Query, index: int = 0) -> Descriptor:
        """Return the layout that the primitive was given, or chose."""
        place = query, index
        known = self.layouts.get(place) or self.answers.get(place)
        if known is None:
            known = self.answers[place] = self._answer(place)
        return known

    @property
    def latest(self) -> SymbolicPrimitive:
        """What takes its place in the end."""
        return self if self.successor is None else self.successor.latest

    def replace_by(self, other: SymbolicPrimitive) -> None:
        """Let another one that has the same layouts take its place."""
        self.successor = other
        other.answers = {**self.answers, **other.answers}

    def _answer(self, place: Place) -> Descriptor:
        """What oneDNN chose as a formula.

        Raises:
            NoFormulaError: there is none.
        """
        chosen, asked = self.witness.descriptor(*place), self.opaque.get(place)
        if asked is None:
            raise NoFormulaError(f"no formula tells {place} of {self.kind}")
        if not isinstance(asked, SymbolicDescriptor):
            return SymbolicDescriptor(chosen, chosen.shape, chosen.strides, (self, *place))
        if chosen.strides is None:
            return SymbolicDescriptor(chosen, asked.shape, None, (self, *place))
        forms = [Descriptor.dense(asked.shape, chosen.data_type)]
        if len(asked.shape) > 2:
            forms.insert(0, Descriptor.channels_last(asked.shape, chosen.data_type))
        for form in forms:
            if number_descriptor(form) == chosen:
                return form
        raise NoFormulaError(f"no formula tells the strides of {chosen}")

    def given(
        self,
        src: Descriptor,
        dst: Descriptor,
        weights: Descriptor | None = None,
        bias: Descriptor | None = None,
    ) -> Primitive:
        """Say which layouts it was asked for with; return self."""
        given = (src, dst, weights, bias)
        self.witness.given(*(each and number_descriptor(each) for each in given))  # type: ignore[arg-type]
        return super().given(src, dst, weights, bias)


@lru_cache(maxsize=64)
def _packing(count: int) -> Callable[..., bytes]:
    """What packs so many pairs of an index and a handle, as oneDNN's dnnl_exec_arg_t."""
    return Struct("@" + "iP" * count).pack


def is_formula(argument: Argument) -> bool:
    """Whether sizes in an argument of `Primitive.create` are formulas."""
    if isinstance(argument, Attributes):
        return argument.is_formula
    if isinstance(argument, tuple):
        return any(isinstance(each, SymbolicDescriptor) or is_symbolic(each) for each in argument)
    return isinstance(argument, SymbolicDescriptor) or is_symbolic(argument)


def _chain(kind: str, arguments: Sequence[Any]) -> tuple[PostOp, ...] | None:
    """What a primitive does to each number, one after the other; None of other kinds."""
    attributes = arguments[-1]
    if not isinstance(attributes, Attributes) or attributes.quantisation:
        return None
    if kind == "binary":
        _, algorithm, _, second, *_ = arguments
        return Binary(Algorithm(algorithm), second), *attributes.post_ops
    if kind == "eltwise_forward":
        _, _, algorithm, _, _, alpha, beta, _ = arguments
        return Eltwise(Algorithm(algorithm), alpha, beta), *attributes.post_ops
    return attributes.post_ops if kind == "matmul" else None


def _of_numbers(argument: Any) -> Any:
    """An argument with the numbers that its sizes have now."""
    if isinstance(argument, Attributes):
        return argument.of_numbers()
    if isinstance(argument, Descriptor):
        return number_descriptor(argument)
    if isinstance(argument, tuple):
        return tuple(
            number_descriptor(each) if isinstance(each, Descriptor) else number_of(each)
            for each in argument
        )
    return number_of(argument)


def _key(kind: str, arguments: Sequence[Argument]) -> _Key | None:
    """What a primitive is recognised by; None where a layout is not known by its numbers."""
    parts: list[Hashable] = [kind, openmp.thread_count()]
    for argument in arguments:
        if isinstance(argument, (Descriptor, Attributes)):
            if argument.key is None:
                return None
            parts.append(argument.key)
        elif isinstance(argument, tuple):
            keys = _keys(argument)
            if None in keys:
                return None
            parts.append(keys)
        elif isinstance(argument, float):
            parts.append(argument.hex())  # by bits: 0 and -0 are equal
        elif not isinstance(argument, c.c_void_p):  # the engine, of which there is one
            parts.append(argument)
    return tuple(parts)


def _keys(argument: tuple[Descriptor, ...] | tuple[int, ...]) -> tuple[Hashable, ...]:
    """The keys of layouts; sizes are their own."""
    if argument and isinstance(argument[0], Descriptor):
        return tuple([each.key for each in argument])
    return argument  # type: ignore[return-value]


def _passed(argument: Argument) -> object:
    """The argument as the C function takes it."""
    if isinstance(argument, (Descriptor, Attributes)):
        return argument.handle
    if isinstance(argument, tuple):
        if argument and isinstance(argument[0], Descriptor):
            handles = [each.handle.value for each in argument]
            return (c.c_void_p * len(handles))(*handles)
        return dims(argument)
    return argument


def built(primitive: Primitive | None) -> Primitive:
    """Return the primitive.

    Raises:
        InferenceError: oneDNN has no implementation.
    """
    if primitive is None:
        raise InferenceError("oneDNN has no code to compare it with")
    return primitive


def execution_error(what: str, status: int) -> InferenceError:
    """Return the exception for a bound call of `what` that returned `status`."""
    known = {s.value: s.name.lower() for s in Status}
    return InferenceError(f"{what}: oneDNN failed with {known.get(status, status)}")


def run_once(primitive: Primitive, arguments: Mapping[int, MemoryObject]) -> None:
    """Execute a primitive outside any plan, with a scratchpad of its own if none is given."""
    all_arguments = dict(arguments)
    if primitive.scratchpad_bytes and Arg.SCRATCHPAD not in arguments:
        buffer = aligned(primitive.scratchpad_bytes)
        all_arguments[Arg.SCRATCHPAD] = MemoryObject(primitive.scratchpad, buffer.ctypes.data)
    call = primitive.compile().bind(all_arguments)
    with openmp.threads(primitive.threads):
        status = call()
    if status:
        raise execution_error(primitive.implementation, status)
