"""The loop over a recurrent layer's steps, emitted for some items of a batch.

What the input brings to all steps is there; a step multiplies the state with the recurrent
weights, block by block of 16 states with all gates of these next to each other, and passes it
through the gates while it is in registers. Items need not be of one length: a step behind an
item's end leaves its states, and writes zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from polydevice_cpu.algorithms.by_machine.code import has_avx512
from polydevice_cpu.algorithms.by_machine.functions import Activation, Functions
from polydevice_cpu.algorithms.by_machine.instructions import (
    ADD,
    LOAD,
    MUL,
    R8,
    R9,
    R10,
    R11,
    R12,
    R13,
    R14,
    R15,
    RAX,
    RBX,
    RCX,
    RDI,
    RDX,
    RSI,
    RSP,
    STORE,
    SUB,
)

BLOCK = 16
"""States that are computed side by side."""

MOST_ITEMS = 4
"""Items that share what is read of the weights."""

GATES = {"lstm": 4, "gru": 3, "rnn": 1}


def items_at_once(kind: str) -> int:
    """Return how many items of a batch code computes at once: in halves of vectors one with gates.

    Its sums, the weights and what they multiply are in registers then.
    """
    return MOST_ITEMS if has_avx512() or GATES[kind] == 1 else 1


STEPS, STEP, RESULT_STEP, ITEM, STATE_ITEM, RESULT_ITEM, BLOCKS, PAIRS = range(8)
LAST_MASK, FIRST, FORWARD, ROW, TERM_BLOCKS, TERM_MASK = range(8, 14)
NUMBERS = 14
"""Numbers behind the addresses: steps; bytes between what the input brings to two steps, and
between two steps' results; the same between two items, and between their states; blocks of states;
pairs of states; which states of the last block there are; the first step and 1 or -1; bytes of an
item's states here. The last two are for `digits`."""

HERE, NEXT, MORE, RESET = range(4)
"""Places of states here: now, after the step, an LSTM's cell or a GRU's update gate, and a GRU's
states behind its reset gate."""

STATES, _ITEMS = 1, 2
"""Masks: of a block's states; of items that a step is for, these and up."""

_OLD, _CELL, _NEW = 16, 17, 18
_WEIGHTS, _FACTORS = 27, 28
"""Vectors besides the sums, which are the first ones, and those that functions use."""


class Form(NamedTuple):
    """What is emitted.

    Attributes:
        kind: of `GATES`.
        activations: the layer's.
        clip: bounds what enters gates; 0: no bound.
        input_forget: whether an LSTM's input gate is 1 - its forget gate.
        peepholes: whether gates see the cell.
        late_reset: whether a GRU's reset gate is behind the recurrent product.
        items: of the batch.
        length_bytes: of an item's length; 0 where all items last for all steps.
    """

    kind: str
    activations: tuple[Activation, ...]
    clip: float
    input_forget: bool
    peepholes: bool
    late_reset: bool
    items: int
    length_bytes: int

    @property
    def names(self) -> tuple[str, ...]:
        """What code is told the addresses of, in order."""
        cell = ("cell",) if self.kind == "lstm" else ()
        return (
            *("entering", "bias", "state", *cell, "weights"),
            *(("peepholes",) if self.peepholes else ()),
            *(("behind",) if self.late_reset else ()),
            *(("lengths",) if self.length_bytes else ()),
            *("result", "last", *(f"last_{each}" for each in cell), "room"),
        )

    @property
    def places(self) -> int:
        """Rows of states that each item has room for."""
        if self.kind == "gru" and not self.late_reset:
            return 4
        return 3 if self.kind == "lstm" else 2

    @property
    def phases(self) -> tuple[tuple[int, ...], ...]:
        """The gates that are multiplied at once."""
        if self.kind == "gru" and not self.late_reset:
            return (0, 1), (2,)
        return (tuple(range(GATES[self.kind])),)


class Loop(Functions):
    """Code of a form; `names` are of what it is told the addresses of."""

    def __init__(self, form: Form, names: Sequence[str], places: int) -> None:
        super().__init__()
        self.form, self.items = form, range(form.items)
        self.gates = GATES[form.kind]
        self.names, self.places = names, places
        self.behind = len(names)

    def at(self, name: str) -> int:
        """Which number an address is."""
        return self.names.index(name)

    def code(self) -> bytes:
        """All of it."""
        slots = 1 + self.places
        self.begin(slots)
        self.plain(0x8D, RSI, RDI, 8 * (self.behind + NUMBERS))
        self.get(RDX, ROW)
        self.scaled(R11, RDX, RDX, 2)
        self.load(RAX, RDI, self.at("room"))
        for place in range(self.places):
            self.store(RAX, RSP, 1 + place)
            for _ in self.items:
                self.add(RAX, RDX)
        self.move_states("", STORE)
        self.begin_states()
        self.load(R13, RDI, self.at("entering"))
        self.load(R14, RDI, self.at("result"))
        self.get(RAX, FIRST)
        self.store(RAX, RSP, 0)
        self.get(R12, STEPS)
        start = len(self.text)
        self.step_of_all()
        self.again(R12, start)
        self.move_states("last_", LOAD)
        self.end(slots)
        return self.assembled()

    def get(self, register: int, number: int) -> None:
        """Load one of the numbers behind the addresses."""
        self.load(register, RDI, self.behind + number)

    def blocks(
        self, body: Callable[[], None], count: int = BLOCKS, last_mask: int = LAST_MASK
    ) -> None:
        """Append what is done for each block; R9 is how many bytes it lies behind the first."""
        self.get(R15, count)
        self.raw("4d31c9")  # xor r9, r9
        start = len(self.text)
        self.raw("b8ffff0000")  # mov eax, 0xffff
        self.compare(R15, 1)
        self.set_if_equal(RAX, RDI, 8 * (self.behind + last_mask))
        self.set_mask(STATES, RAX)
        body()
        self.step(R9, 4 * BLOCK)
        self.again(R15, start)

    def rows(self, place: int, base: int, *, at_block: bool = True) -> list[tuple[int, ...]]:
        """Append what lets a register point to states; return where those of each item are."""
        self.load(base, RSP, 1 + place)
        if at_block:
            self.add(base, R9)
        return [(base,), (base, RDX, 1), (base, RDX, 2), (base, R11, 1)][: self.form.items]

    def move_states(self, prefix: str, how: int) -> None:
        """Append what copies the states here, or to their results."""
        pairs = [("state" if not prefix else "last", HERE)]
        if self.form.kind == "lstm":
            pairs.append((f"{prefix}cell", MORE))

        def body() -> None:
            for name, place in pairs:
                self.load(RAX, RDI, self.at(name))
                self.add(RAX, R9)
                for row in self.rows(place, R8):
                    if how == STORE:
                        self.vector(LOAD, 0, 0, RAX, mask=STATES)
                        self.vector(STORE, 0, 0, *row)
                    else:
                        self.vector(LOAD, 0, 0, *row)
                        self.vector(STORE, 0, 0, RAX, mask=STATES)
                    self.add(RAX, RDI, self.behind + STATE_ITEM)

        self.blocks(body)

    def begin_states(self) -> None:
        """Append what else is made of the first states; nothing here."""

    def step_of_all(self) -> None:
        """Append a step."""
        if self.form.length_bytes:
            self.find_items()
        self.load(RBX, RDI, self.at("weights"))
        for number, gates in enumerate(self.form.phases):
            self.move(R10, R13)

            def body(gates: Sequence[int] = gates, number: int = number) -> None:
                self.multiply(gates, RESET if number else HERE)
                for item in self.items:
                    first = item * len(gates)
                    self.pass_gates(item, list(range(first, first + len(gates))), number)
                self.step(R10, 4 * BLOCK * self.gates)

            self.blocks(body)

        self.blocks(self.copy_states)
        self.add(R13, RDI, self.behind + STEP)
        self.add(R14, RDI, self.behind + RESULT_STEP)
        self.get(RAX, FORWARD)
        self.plain(0x01, RAX, RSP, 0)

    def copy_states(self) -> None:
        """Append what makes the next states of a block the present ones; behind the last, zeros.

        Of odd numbers of states the one behind is multiplied, by zeros, and must be finite.
        """
        for source, target in zip(self.rows(NEXT, R8), self.rows(HERE, RAX), strict=True):
            self.vector(LOAD, 0, 0, *source, mask=STATES)
            self.vector(STORE, 0, 0, *target)

    def find_items(self) -> None:
        """Append masks of the items that a step is for."""
        self.load(R8, RSP, 0)
        self.load(RCX, RDI, self.at("lengths"))
        for item in self.items:
            if self.form.length_bytes == 8:
                self.load(RAX, RCX, item)
            else:
                self.plain(0x63, RAX, RCX, 4 * item)  # movsxd
            self.plain(0x3B, R8, RAX)  # cmp
            self.raw("0f9cc00fb6c0f7d8")  # setl al; movzx eax, al; neg eax
            self.set_mask(_ITEMS + item, RAX)

    def multiply(self, gates: Sequence[int], place: int) -> None:
        """Append what enters gates of a block: sums of each item, gate by gate."""
        count, items = len(gates), self.form.items
        sums = [[item * count + gate for gate in range(count)] for item in self.items]
        # Few sums are added to by turns with others, or each would wait for itself.
        few = 2 if self.is_halved else BLOCK // 2
        extra = items * count if items * count <= few else 0
        self.begin_sums(sums, gates)
        for sum_ in range(extra):
            self.clear(extra + sum_)
        rows = self.rows(place, R8, at_block=False)
        self.get(RCX, PAIRS)
        start = len(self.text)
        for half in range(2):
            for item, row in enumerate(rows):
                self.spread(_FACTORS + item, *row, behind=half)
            for gate in range(count):
                added = [each[gate] + half * extra for each in sums]
                self.add_weighted(added, half * count + gate)
        self.step(R8, 8)
        self.step(RBX, 2 * 4 * BLOCK * count)
        self.again(RCX, start)
        for sum_ in range(extra):
            self.of_vectors(ADD, sum_, sum_, extra + sum_)

    def begin_sums(self, sums: Sequence[Sequence[int]], gates: Sequence[int]) -> None:
        """Append what sums begin with; a late reset's with the bias behind the product."""
        late = self.gates - 1 if self.form.late_reset else None
        self.find_of_gates("bias")
        self.move(RAX, R10)
        for each in sums:
            for sum_, gate in zip(each, gates, strict=True):
                if gate != late:
                    self.enter(sum_, gate, RAX)
            self.add(RAX, RDI, self.behind + ITEM)
        if late is not None:
            self.load(RAX, RDI, self.at("behind"))
            for each in sums:
                self.vector(LOAD, each[late], 0, RAX, R9, 1)

    def add_weighted(self, sums: Sequence[int], number: int) -> None:
        """Append what adds a vector of weights times each item's factor."""
        if len(sums) == 1:
            self.vector(0xB8, sums[0], _FACTORS, RBX, behind=number, kind=2, prefix=1)
            return
        self.vector(LOAD, _WEIGHTS, 0, RBX, behind=number)
        for item, sum_ in enumerate(sums):
            self.add_product(sum_, _FACTORS + item, _WEIGHTS)

    def find_of_gates(self, name: str) -> None:
        """Append what lets R8 point to what there is for each gate of a block."""
        self.load(R8, RDI, self.at(name))
        self.add(R8, R10)
        self.subtract(R8, R13)

    def enter(self, sum_: int, gate: int, base: int) -> None:
        """Append what the input brings to a gate."""
        self.vector(LOAD, sum_, 0, base, behind=gate)
        self.vector(ADD, sum_, sum_, R8, behind=gate)

    def gate(self, x: int, which: int) -> None:
        """Append a function of what enters a gate."""
        if self.form.clip:
            self.bound(x, -self.form.clip, self.form.clip)
        self.activate(x, self.form.activations[which])

    def pass_gates(self, item: int, sums: Sequence[int], phase: int) -> None:
        """Append what an item's states become."""
        if self.form.kind == "lstm":
            self.pass_lstm(item, sums)
        elif self.form.kind == "rnn":
            self.gate(sums[0], 0)
            self.keep_state(item, sums[0])
        elif phase:
            self.vector(LOAD, _CELL, 0, *self.rows(MORE, R8)[item])
            self.finish_gru(item, _CELL, sums[0])
        else:
            self.pass_gru(item, sums)

    def pass_lstm(self, item: int, sums: Sequence[int]) -> None:
        """Append an LSTM's gates; what enters them is in the order f, i, c, o."""
        forget, enter, inner, leave = sums
        places = self.rows(MORE, R8)
        self.vector(LOAD, _OLD, 0, *places[item])
        self.peep(forget, 2, _OLD)
        self.gate(forget, 0)
        if self.form.input_forget:
            self.fill(_CELL, 1)
            self.of_vectors(SUB, enter, _CELL, forget)
        else:
            self.peep(enter, 0, _OLD)
            self.gate(enter, 0)
        self.gate(inner, 1)
        self.of_vectors(MUL, _CELL, forget, _OLD)
        self.add_product(_CELL, enter, inner)
        self.peep(leave, 1, _CELL)
        self.gate(leave, 0)
        self.of_vectors(LOAD, _NEW, 0, _CELL)
        self.activate(_NEW, self.form.activations[2])
        self.of_vectors(MUL, _NEW, _NEW, leave)
        if self.form.length_bytes:
            self.replace(_OLD, _CELL, _ITEMS + item)
        self.vector(
            *(STORE, _OLD if self.form.length_bytes else _CELL, 0, *self.rows(MORE, R8)[item])
        )
        self.keep_state(item, _NEW)

    def peep(self, sum_: int, gate: int, cell: int) -> None:
        """Append what a gate sees of the cell."""
        if self.form.peepholes:
            self.load(RAX, RDI, self.at("peepholes"))
            self.add(RAX, R9)
            place = [(RAX,), (RAX, RDX, 1), (RAX, RDX, 2)][gate]
            self.vector(0xB8, sum_, cell, *place, kind=2, prefix=1)

    def pass_gru(self, item: int, sums: Sequence[int]) -> None:
        """Append a GRU's gates of update and reset, and what follows where that comes late."""
        update, reset, *new = sums
        self.gate(update, 0)
        self.gate(reset, 0)
        if new:
            self.move(RAX, R10)
            for _ in range(item):
                self.add(RAX, RDI, self.behind + ITEM)
            self.find_of_gates("bias")
            self.enter(_CELL, self.gates - 1, RAX)
            self.add_product(_CELL, reset, new[0])
            self.of_vectors(LOAD, new[0], 0, _CELL)
            self.finish_gru(item, update, new[0])
            return
        self.vector(MUL, reset, reset, *self.rows(HERE, R8)[item])
        self.keep(reset, reset, STATES)  # as `copy_states` does
        self.vector(STORE, update, 0, *self.rows(MORE, R8)[item])
        self.vector(STORE, reset, 0, *self.rows(RESET, R8)[item])

    def finish_gru(self, item: int, update: int, new: int) -> None:
        """Append (1 - update) * the new state + update * the old one."""
        self.gate(new, 1)
        self.fill(_NEW, 1)
        self.of_vectors(SUB, _NEW, _NEW, update)
        self.of_vectors(MUL, _NEW, _NEW, new)
        self.vector(0xB8, _NEW, update, *self.rows(HERE, R8)[item], kind=2, prefix=1)
        self.keep_state(item, _NEW)

    def keep_state(self, item: int, new: int) -> None:
        """Append what keeps a new state, and writes it to the result."""
        kept = new
        if self.form.length_bytes:
            kept = _OLD
            self.vector(LOAD, _OLD, 0, *self.rows(HERE, R8)[item])
            self.replace(_OLD, new, _ITEMS + item)
            self.keep(new, new, _ITEMS + item)
        self.vector(STORE, kept, 0, *self.rows(NEXT, R8)[item])
        self.move(RAX, R14)
        self.add(RAX, R9)
        for _ in range(item):
            self.add(RAX, RDI, self.behind + RESULT_ITEM)
        self.vector(STORE, new, 0, RAX, mask=STATES)


def loop(form: Form) -> tuple[bytes, bytes]:
    """Return the code of a form, and the constants that lie behind the numbers it is told."""
    made = Loop(form, form.names, form.places)
    text = made.code()
    return text, b"".join(made.constants)
