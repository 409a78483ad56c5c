"""Code for AVX-512 made of instructions of AVX2 and FMA: each on the halves of its vectors.

Who emits code says what happens to vectors of 16 numbers, in 32 registers, and elements by masks.
Here each instruction becomes two of 8 numbers. The vectors that loops use the most are in
registers; others, and masks, lie on the stack.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from polydevice_cpu.algorithms.by_machine.avx2.encoding import (
    BEHIND,
    DISTANCE_BYTES,
    Place,
    encoded,
)
from polydevice_cpu.algorithms.by_machine.avx2.homes import HALF_BYTES, Homes, clears, index_of
from polydevice_cpu.algorithms.by_machine.avx2.operations import (
    WAYS,
    WIDENED,
    Masks,
    OnMask,
    Vector,
    Way,
    has_form,
)

_S0, _S1, _S2 = range(13, 16)
"""Registers for what comes between."""

_COMMUTATIVE = {(1, 0, 0x58), (1, 0, 0x59), (1, 1, 0xDB), (1, 1, 0xEB), (1, 1, 0xEF), (1, 1, 0xFE)}

_BITS = [
    struct.pack("<8I", *(1 << element for element in range(half, half + 8))) for half in (0, 8)
]
"""Which bit of a mask each element has, by half."""

_EQUAL, _BELOW, _NOT_ABOVE, _UNLIKE, _NOT_BELOW, _ABOVE = 0, 1, 2, 4, 5, 6
"""How integers are compared."""


class MissingInstructionError(ValueError):
    """Code has an instruction that is not made of others here."""


def halved(
    text: bytes | bytearray,
    operations: Sequence[Vector | OnMask],
    jumps: Mapping[int, int],
    halves: int,
) -> bytes:
    """Return code with instructions for halves in place of those for vectors.

    Args:
        text: code, with a byte for each of these.
        operations: instructions, in the order of their places.
        jumps: where the distances of jumps end, and where these lead to.
        halves: how many a vector has.

    Raises:
        MissingInstructionError: one is not known.
    """
    return _Halved(Homes(operations, jumps, halves)).of(text, operations, jumps)


@dataclass
class _Halved:
    homes: Homes
    text: bytearray = field(default_factory=bytearray)
    constants: list[bytes] = field(default_factory=list)
    """What lies behind the code."""
    distances: list[tuple[int, int, int]] = field(default_factory=list)
    """Where distances to constants end, where their instructions do, and of which constants."""

    def of(
        self,
        text: bytes | bytearray,
        operations: Sequence[Vector | OnMask],
        jumps: Mapping[int, int],
    ) -> bytes:
        ways: dict[Way, Callable[[Vector], None]] = {
            Way.MOVE: self._move, Way.STORE: self._store, Way.BINARY: self._binary,
            Way.SUM: self._sum, Way.UNARY: self._unary, Way.SPREAD: self._spread,
            Way.COMPARE: self._compare, Way.TEST: self._test, Way.SHIFT: self._shift,
            Way.WIDEN: self._widen, Way.POWER: self._power, Way.GATHER: self._gather,
            Way.INTEGER: self._integer, Way.HALF: self._half, Way.QUARTERS: self._quarters,
        }  # fmt: skip
        moved, begin = [(0, 0)], 0  # where parts of the text begin, here and there
        for each in operations:
            self.text += text[begin : each.place]
            if isinstance(each, OnMask):
                self._on_mask(each)
            elif not has_form(each, self.homes.halves):
                raise MissingInstructionError(f"{each} has no form for AVX2")
            else:
                ways[WAYS[each.key]](each)
            begin = each.place + 1
            moved.append((begin, len(self.text)))
        self.text += text[begin:]
        starts = [here for here, _ in moved]

        def there(place: int) -> int:
            here, found = moved[_before(starts, place)]
            return found + place - here

        for end, to in jumps.items():
            place = there(end)
            self.text[place - DISTANCE_BYTES : place] = struct.pack("<i", there(to) - place)
        self.text += bytes(-len(self.text) % HALF_BYTES)
        for end, next_, number in self.distances:
            distance = len(self.text) + HALF_BYTES * number - next_
            self.text[end - DISTANCE_BYTES : end] = struct.pack("<i", distance)
        return bytes(self.text) + b"".join(self.constants)

    # -- instructions -------------------------------------------------------------------------

    def _add(
        self,
        opcode: int,
        register: int,
        first: int | None,
        last: int | Place,
        *,
        kind: int = 1,
        prefix: int = 0,
        wide: bool = False,
        is_short: bool = False,
        last_byte: int | None = None,
    ) -> None:
        self.text += encoded(
            *(opcode, register, first, last), kind=kind, prefix=prefix, wide=wide, is_short=is_short
        )
        end = len(self.text)
        if last_byte is not None:
            self.text.append(last_byte & 0xFF)
        if isinstance(last, Place) and last.base == BEHIND:
            self.distances.append((end, len(self.text), last.offset_bytes))

    def _constant(self, bytes_: bytes) -> Place:
        """Where a constant lies, which all code here has once."""
        if bytes_ not in self.constants:
            self.constants.append(bytes_)
        return Place(BEHIND, offset_bytes=self.constants.index(bytes_))

    def _load(self, register: int, last: int | Place) -> int:
        """Load what is not in a register; return which register has it."""
        if isinstance(last, int):
            return last
        self._add(0x10, register, None, last)
        return register

    def _put(self, vector: int, half: int, register: int) -> None:
        """Let a half of a vector be what a register has."""
        home = self.homes.of(vector, half)
        if home != register:
            if isinstance(home, Place):
                self._add(0x11, register, None, home)
            else:
                self._add(0x10, home, None, register)

    def _target(self, vector: int, half: int) -> int:
        """The register of a half of a vector, or one for what is put there then."""
        home = self.homes.of(vector, half)
        return home if isinstance(home, int) else _S0

    def _mask(self, each: Vector, half: int) -> int:
        return self._load(_S1, self.homes.of_mask(each.mask, half))

    def _halves(self, vector: int | None = None) -> range:
        return range(1 if vector in self.homes.single else self.homes.halves)

    def _last(self, each: Vector, half: int) -> int | Place:
        """The last operand of an instruction: of those in memory that a mask says, in a register.

        What is one number for all is loaded once, before the first half, where no mask is loaded.
        """
        if not each.is_memory:
            return self.homes.of(each.base, half)
        if each.base == BEHIND:
            return self._constant(struct.pack("<I", each.offset_bytes) * 8)
        if each.is_one:
            if half == 0 or each.mask:
                kind = 0x19 if each.wide else 0x18
                self._add(kind, _S1, None, _place(each, 0), kind=2, prefix=1)
            return _S1
        if not each.mask:
            return _place(each, half)
        self._add(0x2C, _S1, self._mask(each, half), _place(each, half), kind=2, prefix=1)
        return _S1

    def _blend(self, vector: int, half: int, each: Vector, made: int) -> None:
        """Put what was made into a vector, where there is no mask or where that says."""
        if each.mask:
            old = self._load(_S2, self.homes.of(vector, half))
            target = self._target(vector, half)
            mask = self._mask(each, half)
            self._add(0x4A, target, old, made, kind=3, prefix=1, last_byte=mask << 4)
            made = target
        self._put(vector, half, made)

    def _result(self, vector: int, half: int, each: Vector) -> int:
        """Where an instruction makes a half of a vector."""
        return _S0 if each.mask else self._target(vector, half)

    # -- ways ---------------------------------------------------------------------------------

    def _move(self, each: Vector) -> None:
        keeps = each.opcode == 0x28  # others fill with zeros what a mask does not say
        for half in self._halves(each.register):
            last = self._last(each, half)
            if each.is_memory and isinstance(last, int):
                made = last  # by a mask
            elif each.mask and not keeps:
                made = self._target(each.register, half)
                self._add(0x54, made, self._mask(each, half), last)
            else:
                made = self._load(self._result(each.register, half, each), last)
            if keeps:
                self._blend(each.register, half, each, made)
            else:
                self._put(each.register, half, made)

    def _store(self, each: Vector) -> None:
        if not each.is_memory:
            for half in self._halves(each.base):
                made = self._load(_S0, self.homes.of(each.register, half))
                self._blend(each.base, half, each, made)
            return
        if each.mask and each.prefix == 3:
            raise MissingInstructionError("bytes that a mask says cannot be stored")
        for half in self._halves():
            made = self._load(_S0, self.homes.of(each.register, half))
            place = _place(each, half)
            if each.mask:
                self._add(0x2E, made, self._mask(each, half), place, kind=2, prefix=1)
            else:
                self._add(0x11, made, None, place)

    def _binary(self, each: Vector) -> None:
        if clears(each):
            for half in self._halves(each.register):
                target = self._target(each.register, half)
                self._add(0x57, target, target, target)
                self._put(each.register, half, target)
            return
        for half in self._halves(each.register):
            last = self._last(each, half)
            first = self.homes.of(each.first, half)
            if each.key in _COMMUTATIVE and isinstance(first, Place) and isinstance(last, int):
                first, last = last, first
            made = self._result(each.register, half, each)
            self._add(
                *(each.opcode, made, self._load(_S2, first), last),
                kind=each.kind,
                prefix=each.prefix,
                last_byte=each.last_byte,
            )
            self._blend(each.register, half, each, made)

    def _sum(self, each: Vector) -> None:
        for half in self._halves(each.register):
            last = self._last(each, half)
            first = self._load(_S2, self.homes.of(each.first, half))
            home = self.homes.of(each.register, half)
            made = home if isinstance(home, int) and not each.mask else _S0
            if made != home:
                self._add(0x10, _S0, None, home)
            self._add(
                *(each.opcode, made, first, last),
                kind=each.kind,
                prefix=each.prefix,
                wide=each.wide,
            )
            self._blend(each.register, half, each, made)

    def _unary(self, each: Vector) -> None:
        for half in self._halves(each.register):
            made = self._result(each.register, half, each)
            self._add(
                *(each.opcode, made, None, self._last(each, half)),
                kind=each.kind,
                prefix=each.prefix,
                last_byte=each.last_byte,
            )
            self._blend(each.register, half, each, made)

    def _spread(self, each: Vector) -> None:
        halves = self._halves(each.register)
        made = self._target(each.register, 0) if len(halves) == 1 and not each.mask else _S0
        for half in halves:
            if half == 0 or each.mask:  # which takes the register
                self._spread_into(made, each)
            self._blend(each.register, half, each, made)

    def _spread_into(self, made: int, each: Vector) -> None:
        """Fill a register with a number from memory, from another register, or of a vector."""
        opcode = {0x18: 0x18, 0x58: 0x58, 0x7C: 0x58, 0x59: 0x59}[each.opcode]
        if each.opcode == 0x7C:
            self._add(0x6E, made, None, each.base, prefix=1, is_short=True)  # vmovd
            last: int | Place = made
        elif each.is_memory:
            last = _place(each, 0)
        else:
            last = self.homes.of(each.base, 0)
        self._add(opcode, made, None, last, kind=2, prefix=1)

    def _compare(self, each: Vector) -> None:
        for half in self._halves():
            last = self._last(each, half)
            first = self._load(_S2, self.homes.of(each.first, half))
            if each.kind == 1:
                is_byte = each.opcode == 0xC2
                self._add(
                    *(each.opcode, _S0, first, last),
                    prefix=each.prefix,
                    last_byte=each.last_byte if is_byte else None,
                )
            else:
                self._compare_integers(each, first, last)
            self._put_mask(each, half)

    def _compare_integers(self, each: Vector, first: int, last: int | Place) -> None:
        """Set the first register for what comes between to how integers compare."""
        how, is_signed = each.last_byte, each.opcode == 0x1F
        if how in {_EQUAL, _UNLIKE}:
            self._add(0x76, _S0, first, last, prefix=1)
        elif how in {_NOT_ABOVE, _ABOVE}:  # the smaller one is the first
            self._add(0x39 if is_signed else 0x3B, _S0, first, last, kind=2, prefix=1)
            self._add(0x76, _S0, _S0, first, prefix=1)
        elif how in {_BELOW, _NOT_BELOW}:  # the larger one is the first
            self._add(0x3D if is_signed else 0x3F, _S0, first, last, kind=2, prefix=1)
            self._add(0x76, _S0, _S0, first, prefix=1)
        else:
            raise MissingInstructionError(f"integers are not compared as {how} says")
        if how in {_UNLIKE, _ABOVE, _BELOW}:
            self._invert(_S0)

    def _invert(self, register: int) -> None:
        self._add(0x76, _S2, _S2, _S2, prefix=1)
        self._add(0xEF, register, register, _S2, prefix=1)

    def _test(self, each: Vector) -> None:
        for half in self._halves():
            last = self._last(each, half)
            first = self._load(_S2, self.homes.of(each.first, half))
            self._add(0xDB, _S0, first, last, prefix=1)
            self._add(0xEF, _S2, _S2, _S2, prefix=1)
            self._add(0x76, _S0, _S0, _S2, prefix=1)
            if each.prefix == 1:
                self._invert(_S0)
            self._put_mask(each, half)

    def _put_mask(self, each: Vector, half: int) -> None:
        """Set a mask to what was compared, where there is no other mask or where that says."""
        if each.mask:
            self._add(0x54, _S0, _S0, self.homes.of_mask(each.mask, half))
        self._add(0x11, _S0, None, self.homes.of_mask(each.register, half))

    def _shift(self, each: Vector) -> None:
        for half in self._halves(each.first):
            made = self._result(each.first, half, each)
            last = self._load(_S0, self._last(each, half))
            self._add(0x72, each.register, made, last, prefix=1, last_byte=each.last_byte)
            self._blend(each.first, half, each, made)

    def _widen(self, each: Vector) -> None:
        if each.mask:
            raise MissingInstructionError("integers that a mask says are not made longer")
        read = HALF_BYTES // WIDENED[each.opcode]
        first = 0 if each.is_memory else self._load(_S1, self.homes.of(each.base, 0))
        if not each.is_memory and first != _S1:  # which the first half of the result may be
            self._add(0x10, _S1, None, first)
        for half in self._halves():
            last: int | Place = _S1
            if each.is_memory:
                last = _place(each, half, read)
            elif half and read == 16:
                self._add(0x39, _S1, None, _S1, kind=3, prefix=1, last_byte=1)  # vextracti128
            elif half:
                self._add(0x73, 3, _S1, _S1, prefix=1, is_short=True, last_byte=read)  # vpsrldq
            made = self._result(each.register, half, each)
            self._add(each.opcode, made, None, last, kind=2, prefix=1)
            self._blend(each.register, half, each, made)

    def _power(self, each: Vector) -> None:
        """Multiply by 2 to the power of half of a number, and of the rest: powers may be tiny."""
        for half in self._halves(each.register):
            self._add(0x5B, _S1, None, self._last(each, half), prefix=1)  # vcvtps2dq
            self._add(0x72, 4, _S2, _S1, prefix=1, last_byte=1)  # vpsrad
            self._add(0xFA, _S1, _S1, _S2, prefix=1)
            self._add(0x76, _S0, _S0, _S0, prefix=1)
            self._add(0x72, 2, _S0, _S0, prefix=1, last_byte=25)  # 127
            for power in (_S1, _S2):
                self._add(0xFE, power, power, _S0, prefix=1)
                self._add(0x72, 6, power, power, prefix=1, last_byte=23)
            first = self.homes.of(each.first, half)
            self._add(0x59, _S1, _S1, first)
            made = self._result(each.register, half, each)
            self._add(0x59, made, _S1, _S2)
            self._blend(each.register, half, each, made)

    def _gather(self, each: Vector) -> None:
        for half in self._halves():
            self._add(0x10, _S0, None, self.homes.of(each.register, half))
            index = self._load(_S1, self.homes.of(index_of(each), half))
            mask = self._load(_S2, self.homes.of_mask(each.mask, half))
            place = Place(each.base, index, each.times, each.offset_bytes)
            self._add(0x92, _S0, mask, place, kind=2, prefix=1)
            self._put(each.register, half, _S0)
            self._add(0x11, _S2, None, self.homes.of_mask(each.mask, half))  # it is empty now

    def _integer(self, each: Vector) -> None:
        self._add(0x57, _S1, _S1, _S1)
        self._add(0x2A, _S0, _S1, _place(each, 0), prefix=2, wide=True, is_short=True)
        for half, made in zip(self._halves(), (_S0, _S1), strict=False):
            self._put(each.register, half, made)

    def _half(self, each: Vector) -> None:
        if each.mask or each.is_memory or each.last_byte is None or self.homes.halves == 1:
            raise MissingInstructionError("a half is not put where a mask says, or into memory")
        self._put(each.base, 0, self._load(_S0, self.homes.of(each.register, each.last_byte)))
        self._add(0x57, _S0, _S0, _S0)
        self._put(each.base, 1, _S0)

    def _quarters(self, each: Vector) -> None:
        if each.mask or each.is_memory or each.last_byte is None or self.homes.halves == 1:
            raise MissingInstructionError("quarters are not taken of memory, or where a mask says")
        how = each.last_byte
        for half, vector in enumerate((each.first, each.base)):
            low = self._load(_S2, self.homes.of(vector, 0))
            pair = how >> 4 * half & 3 | (how >> 4 * half + 2 & 3) << 4
            made = _S0 + half
            high = self.homes.of(vector, 1)
            self._add(0x06, made, low, high, kind=3, prefix=1, last_byte=pair)  # vperm2f128
        for half in range(2):
            self._put(each.register, half, _S0 + half)

    # -- masks --------------------------------------------------------------------------------

    def _on_mask(self, each: OnMask) -> None:
        places = [self.homes.of_mask(each.mask, half) for half in self._halves()]
        if each.what is Masks.SET:
            self._add(0x6E, _S0, None, each.other, prefix=1, is_short=True)  # vmovd
            self._add(0x58, _S0, None, _S0, kind=2, prefix=1)
            for half, place in enumerate(places):
                self._load(_S1, self._constant(_BITS[half]))
                self._add(0xDB, _S2, _S0, _S1, prefix=1)
                self._add(0x76, _S2, _S2, _S1, prefix=1)
                self._add(0x11, _S2, None, place)
        elif each.what is Masks.BITS:
            self._get_bits(each.other, places)
        elif each.what is Masks.COPY:
            for half, place in enumerate(places):
                self._load(_S0, self.homes.of_mask(each.other, half))
                self._add(0x11, _S0, None, place)
        elif each.what is Masks.FILL:
            self._add(0x76, _S0, _S0, _S0, prefix=1)
            for place in places:
                self._add(0x11, _S0, None, place)
        else:
            is_all = each.what is Masks.ALL
            self._load(_S0, places[0])
            for place in places[1:]:
                self._add(0x54 if is_all else 0x56, _S0, _S0, place)
            if is_all:
                self._add(0x76, _S1, _S1, _S1, prefix=1)
            self._add(0x17, _S0, None, _S1 if is_all else _S0, kind=2, prefix=1)  # vptest

    def _get_bits(self, register: int, places: Sequence[Place]) -> None:
        """Set a register to the bits of a mask: of words, of bytes, and of these."""
        self._load(_S0, places[0])
        if len(places) == 1:
            self._add(0x50, register, None, _S0)  # vmovmskps
            return
        self._add(0x6B, _S0, _S0, places[1], prefix=1)  # vpackssdw
        self._add(0x00, _S0, None, _S0, kind=3, prefix=1, wide=True, last_byte=0xD8)  # vpermq
        self._add(0x63, _S0, _S0, _S0, prefix=1)  # vpacksswb
        self._add(0x00, _S0, None, _S0, kind=3, prefix=1, wide=True, last_byte=0x08)
        self._add(0xD7, register, None, _S0, prefix=1, is_short=True)  # vpmovmskb


def _place(each: Vector, half: int, bytes_: int = HALF_BYTES) -> Place:
    """Where a half of what an instruction reads or writes lies."""
    return Place(each.base, each.scaled, each.times, each.offset_bytes + half * bytes_)


def _before(starts: Sequence[int], place: int) -> int:
    """Which part of a text has a place: that before its beginning, as jumps end there."""
    low, high = 0, len(starts)
    while high - low > 1:
        middle = (low + high) // 2
        if starts[middle] <= place:
            low = middle
        else:
            high = middle
    return low
