"""Trees: rows go through the trees of a forest, eight at a time, by machine code without branches.

Each step waits for what the last one loads, some 18 cycles, and takes 8 instructions: so eight
rows go through a tree at once, or one row goes through eight trees. With branches, which are
foreseen half of the time, each step takes 25 cycles; and 5 where AVX-512 fetches 16 nodes at once.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from polydevice.ops.trees import Aggregate
from polydevice.processor.machine_code import function_of, processor_flags
from polydevice_cpu.algorithms.by_machine.code import PARTS_AT_ONCE, Code, may_share, told
from polydevice_cpu.algorithms.by_machine.instructions import (
    ADD,
    MAX,
    MIN,
    R8,
    R9,
    R10,
    R11,
    R12,
    R13,
    R14,
    R15,
    RAX,
    RBP,
    RBX,
    RCX,
    RDI,
    RDX,
    RSI,
    RSP,
    Instructions,
)
from polydevice_cpu.algorithms.forest import (
    AT_ONCE,
    COLUMN_BYTES,
    TREE_BYTES,
    Layout,
    Votes,
)

SHARED = 1 << 15
"""From so many steps on threads share the work, which takes one 3 us."""

KEYS_BYTES = 1 << 16
"""About how many bytes of keys go through a tree while it is in the first cache."""

(_X, _FOREST, _Y, _KEYS, _ROWS, _EACH, _TAKEN, _IS_ALONE, _NODES_AT, _TREES_AT, _COLUMNS_AT,
 _VOTES_AT, _TREES, _GROUPS, _COLUMNS, _X_BYTES, _Y_BYTES, _TARGETS, _VECTORS, _REST, _NONE,
 _KEY_ROW_BYTES) = range(22)  # fmt: skip
"""What is told: addresses; rows, how many are taken at a time, are taken, and whether by one thread
alone; where tables are in the forest; trees, groups of them and columns; bytes of a row of features
and of the result, in which there are so many targets, vectors of these and others behind them; what
the result begins with, and bytes of a row of keys."""

_ARGUMENTS = struct.Struct("@4P18q").pack

_CHAINS = R8, R9, R10, R11, R12, R13, R14, R15
_OPCODES = {Aggregate.SUM: ADD, Aggregate.MIN: MIN, Aggregate.MAX: MAX}
_SLOTS = _ROW, _X_ROW, _KEY_ROW, _EIGHTS, _SINGLES, _TREES_LEFT, _TREE, _ROOT, _LEVELS = range(9)
"""On the stack: the next row of the result, of features and of keys; how many times eight rows and
single ones there are; trees left, the next one; its first node, and its levels."""


def is_there() -> bool:
    """Whether there is code for trees."""
    return "avx" in processor_flags() and function_of(_emitted(4, Votes.ONE, ADD)) is not None


def key_rows(rows: int) -> int:
    """Return for how many rows there has to be room for keys: whole groups."""
    return -(-rows // AT_ONCE) * AT_ONCE


def code_of(
    shape: Sequence[int], dtype: np.dtype[np.generic], layout: Layout, how: Aggregate, threads: int
) -> Code:
    """Return code that is told where features, a packed forest, the result and room for keys are.

    Args:
        shape: [rows, features], row-major.
        dtype: f32 or f64.
        layout: of the forest.
        how: votes are put together.
        threads: how many may share the work.
    """
    rows, features = shape
    item = dtype.itemsize
    lanes = 16 // item
    key_bytes = layout.columns * item
    each = max(KEYS_BYTES // key_bytes // AT_ONCE, 1) * AT_ONCE
    shares = threads > 1 and rows > AT_ONCE and rows * layout.levels >= SHARED and may_share()
    if shares:
        parts = threads * PARTS_AT_ONCE
        each = min(each, -(-rows // (parts * AT_ONCE)) * AT_ONCE)
    kind = Votes(layout.votes_kind)
    targets = layout.targets
    numbers = told(
        _ARGUMENTS,
        *(0, 0, 0, 0, rows, each, 0, not shares),
        *(layout.nodes_at, layout.trees_at, layout.columns_at, layout.votes_at),
        *(layout.trees, layout.trees // AT_ONCE, layout.columns, features * item, targets * item),
        *(targets, targets // lanes, targets % lanes, layout.none, key_bytes),
    )
    made = function_of(_emitted(item, kind, _OPCODES[how])), numbers
    return Code.together(made, _TAKEN, threads) if shares else Code.of([made])


class _Code(Instructions):
    """Instructions on keys and votes of 4 or 8 bytes."""

    def __init__(self, item: int) -> None:
        super().__init__()
        self.item = item

    def on_memory(
        self,
        opcode: int,
        register: int,
        base: int,
        offset: int = 0,
        index: int | None = None,
        times: int = 1,
        *,
        wide: bool = True,
        before: str = "",
    ) -> None:
        """Append an instruction on a register and [base + index * times + offset].

        Args:
            opcode: of one byte, or two that begin with 0x0f.
            register: the first operand.
            base: of the address.
            offset: from -128 to 127.
            index: not RSP.
            times: of the index.
            wide: whether operands have 8 bytes.
            before: a prefix.
        """
        self.raw(before)
        high = 0 if index is None else index >> 3
        self.text.append(0x40 | wide << 3 | register >> 3 << 2 | high << 1 | base >> 3)
        self.text += opcode.to_bytes(2 if opcode > 0xFF else 1, "big")
        is_indexed = index is not None or base & 7 == RSP
        self.text.append(0x40 | (register & 7) << 3 | (4 if is_indexed else base & 7))
        if is_indexed:
            place = (RSP if index is None else index) & 7
            self.text.append((times.bit_length() - 1) << 6 | place << 3 | base & 7)
        self.text += struct.pack("<b", offset)

    def on_number(self, opcode: int, vector: int, base: int, offset: int = 0, **more: int) -> None:
        """Append one on a number of floating point: 0x10 loads, 0x11 stores."""
        prefix = "f3" if self.item == 4 else "f2"
        given = 0x0F00 | opcode, vector, base, offset
        self.on_memory(*given, wide=False, before=prefix, **more)

    def on_vector(self, opcode: int, vector: int, base: int) -> None:
        """Append one on 16 bytes that lie anywhere."""
        prefix = "" if self.item == 4 else "66"
        self.on_memory(0x0F00 | opcode, vector, base, wide=False, before=prefix)


@lru_cache(maxsize=32)
def _emitted(item: int, votes: Votes, how: int) -> bytes:
    """Return ``size_t walk(told* rdi)``: 0."""
    code = _Code(item)
    code.begin(len(_SLOTS))
    claim = len(code.text)
    code.load(RAX, RDI, _EACH)
    code.move(RDX, RAX)
    code.raw("f0480fc147")  # lock xadd [rdi + 8 * _TAKEN], rax
    code.text.append(8 * _TAKEN)
    code.load(RCX, RDI, _ROWS)
    code.subtract(RCX, RAX)
    end = code.ahead("0f86")  # jbe
    code.raw("4839d1480f42d1")  # cmp rcx, rdx; cmovb rdx, rcx
    _append_begin(code)
    for slot, lanes in ((_EIGHTS, AT_ONCE), (_SINGLES, 1)):
        _append_keys(code, slot, lanes)
    _append_rows(code, votes, how)
    _append_single_rows(code, votes, how)
    code.jump(claim)
    code.here(end)
    code.load(RAX, RDI, _IS_ALONE)
    code.compare(RAX, 0)
    shared = code.ahead("0f84")
    code.raw("31c0")  # xor eax, eax
    code.store(RAX, RDI, _TAKEN)
    code.here(shared)
    code.end(len(_SLOTS))
    return code.assembled()


def _append_begin(code: _Code) -> None:
    """Append where the RDX rows from the RAXth on are, and what their results begin with.

    R8 and R9: their features and room for their keys.
    """
    for register, bytes_, address in ((RBX, _Y_BYTES, _Y), (R8, _X_BYTES, _X)):
        code.move(register, RAX)
        code.times(register, RDI, bytes_)
        code.add(register, RDI, address)
    code.move(R9, RAX)
    code.times(R9, RDI, _KEY_ROW_BYTES)
    code.add(R9, RDI, _KEYS)
    for slot, register in ((_ROW, RBX), (_X_ROW, R8), (_KEY_ROW, R9)):
        code.store(register, RSP, slot)
    code.move(RCX, RDX)
    code.times(RCX, RDI, _TARGETS)
    code.load(RAX, RDI, _NONE)
    fill = len(code.text)
    code.on_memory(0x89, RAX, RBX, wide=code.item == 8)
    code.step(RBX, code.item)
    code.again(RCX, fill)
    code.move(RCX, RDX)
    code.raw("48c1e90383e207")  # shr rcx, 3; and edx, 7
    code.store(RCX, RSP, _EIGHTS)
    code.store(RDX, RSP, _SINGLES)


def _append_keys(code: _Code, slot: int, lanes: int) -> None:
    """Append what makes keys of so many rows that lie side by side, time and again.

    R8, R9: features and keys; R10, R11: the column and how many are left; R12: above it, without
    its sign, is what is not a number; R13: how many times; RSI: the row; R15: bytes between rows.
    """
    wide = code.item == 8
    code.load(R13, RSP, slot)
    code.compare(R13, 0)
    none = code.ahead("0f84")
    code.load(R15, RDI, _X_BYTES)
    limit = np.array(np.inf, f"f{code.item}").view(f"u{code.item}").item() << 1
    code.raw("49bc")  # mov r12, limit
    code.text += struct.pack("<Q", limit & (1 << 8 * code.item) - 1)
    group = len(code.text)
    code.load(R10, RDI, _FOREST)
    code.add(R10, RDI, _COLUMNS_AT)
    code.load(R11, RDI, _COLUMNS)
    column = len(code.text)
    code.load(RSI, R10)
    code.add(RSI, R8)
    rex = "48" if wide else ""
    for lane in range(lanes):
        if lane:
            code.add(RSI, R15)
        code.on_memory(0x8B, RAX, RSI, wide=wide)
        code.raw(f"{rex}89c2{rex}01d2")  # mov edx, eax; add edx, edx
        code.raw(f"{rex}89c1{rex}c1f9{8 * code.item - 1:02x}")  # mov ecx, eax; sar ecx, 31
        code.raw(f"{rex}d1e9{rex}31c8")  # shr ecx, 1; xor eax, ecx
        code.raw(f"{rex}85d2{rex}0f44c2")  # test edx, edx; cmovz eax, edx
        code.raw(f"{'4c' if wide else '44'}39e2")  # cmp edx, r12d
        code.on_memory(0x0F47, RAX, R10, 8, wide=wide)  # cmova eax, [r10 + 8]
        code.on_memory(0x89, RAX, R9, code.item * lane, wide=wide)
    code.step(R9, code.item * lanes)
    code.step(R10, COLUMN_BYTES)
    code.again(R11, column)
    if lanes > 1:
        code.scaled(R8, R8, R15, lanes)
    else:
        code.add(R8, R15)
    code.again(R13, group)
    code.here(none)


def _append_steps(code: _Code, *, rows: bool) -> None:
    """Append what goes down RDX levels from the nodes of all chains; RSI: keys.

    Args:
        code: is appended to.
        rows: whether chains are rows, whose keys lie side by side, or trees.
    """
    wide = code.item == 8
    code.compare(RDX, 0)
    none = code.ahead("0f84")
    level = len(code.text)
    for number, node in enumerate(_CHAINS):
        code.on_memory(0x8B, RAX, node, code.item, wide=False)
        given = RAX, RSI, code.item * number if rows else 0, RAX, AT_ONCE if rows else 1
        code.on_memory(0x8B, *given, wide=wide)
        code.raw("31c9")  # xor ecx, ecx
        code.on_memory(0x3B, RAX, node, wide=wide)
        code.raw("0f9ec1")  # setle cl
        code.on_memory(0x63, RAX, node, code.item + 4, RCX, 4)  # movsxd
        code.add(node, RAX)
    code.again(RDX, level)
    code.here(none)


def _append_rows(code: _Code, votes: Votes, how: int) -> None:
    """Append what takes eight rows through one tree after the other."""
    code.load(RBX, RSP, _ROW)
    code.load(RSI, RSP, _KEY_ROW)
    code.load(RBP, RSP, _EIGHTS)
    code.compare(RBP, 0)
    none = code.ahead("0f84")
    _append_first_tree(code, _TREES)
    tree = len(code.text)
    code.load(RAX, RSP, _TREE)
    code.load(RCX, RAX)
    code.add(RCX, RDI, _FOREST)
    code.add(RCX, RDI, _NODES_AT)
    code.store(RCX, RSP, _ROOT)
    code.load(RCX, RAX, 1)
    code.store(RCX, RSP, _LEVELS)
    code.load(RBX, RSP, _ROW)
    code.load(RSI, RSP, _KEY_ROW)
    code.load(RBP, RSP, _EIGHTS)
    eight = len(code.text)
    for node in _CHAINS:
        code.load(node, RSP, _ROOT)
    code.load(RDX, RSP, _LEVELS)
    _append_steps(code, rows=True)
    for node in _CHAINS:
        _append_vote(code, node, votes, how)
        code.add(RBX, RDI, _Y_BYTES)
    for _ in range(AT_ONCE):
        code.add(RSI, RDI, _KEY_ROW_BYTES)
    code.again(RBP, eight)
    _append_next_tree(code, tree, 1)
    code.here(none)


def _append_single_rows(code: _Code, votes: Votes, how: int) -> None:
    """Append what takes each of the other rows, from RBX on, through eight trees at a time."""
    code.load(RBP, RSP, _SINGLES)
    code.compare(RBP, 0)
    none = code.ahead("0f84")
    row = len(code.text)
    _append_first_tree(code, _GROUPS)
    tree = len(code.text)
    code.load(RAX, RSP, _TREE)
    code.load(RCX, RDI, _FOREST)
    code.add(RCX, RDI, _NODES_AT)
    code.load(RDX, RAX, 2)
    for number, node in enumerate(_CHAINS):
        code.move(node, RCX)
        code.add(node, RAX, TREE_BYTES // 8 * number)
    _append_steps(code, rows=False)
    for node in _CHAINS:
        _append_vote(code, node, votes, how)
    _append_next_tree(code, tree, AT_ONCE)
    code.add(RSI, RDI, _KEY_ROW_BYTES)
    code.add(RBX, RDI, _Y_BYTES)
    code.again(RBP, row)
    code.here(none)


def _append_first_tree(code: _Code, count: int) -> None:
    code.load(RAX, RDI, _FOREST)
    code.add(RAX, RDI, _TREES_AT)
    code.store(RAX, RSP, _TREE)
    code.load(RAX, RDI, count)
    code.store(RAX, RSP, _TREES_LEFT)


def _append_next_tree(code: _Code, start: int, trees: int) -> None:
    code.load(RAX, RSP, _TREE)
    code.step(RAX, TREE_BYTES * trees)
    code.store(RAX, RSP, _TREE)
    code.again(RSP, start, _TREES_LEFT)


def _append_vote(code: _Code, leaf: int, votes: Votes, how: int) -> None:
    """Append what lets a leaf vote in the row at RBX."""
    if votes is Votes.ONE:
        code.on_number(0x10, 0, RBX)
        code.on_number(how, 0, leaf)
        code.on_number(0x11, 0, RBX)
        return
    code.on_memory(0x8B, RAX, leaf, wide=False)
    code.add(RAX, RDI, _FOREST)
    code.add(RAX, RDI, _VOTES_AT)
    if votes is Votes.SINGLE:
        code.load(RCX, RAX)
        code.on_number(0x10, 0, RBX, index=RCX)
        code.on_number(how, 0, RAX, 8)
        code.on_number(0x11, 0, RBX, index=RCX)
        return
    code.move(RCX, RBX)
    for count, append, size in (
        (_VECTORS, code.on_vector, 16), (_REST, code.on_number, code.item)
    ):  # fmt: skip
        code.load(RDX, RDI, count)
        code.compare(RDX, 0)
        none = code.ahead("0f84")
        some = len(code.text)
        append(0x10, 0, RCX)
        append(0x10, 1, RAX)
        code.raw({4: "", 8: "66"}[code.item])
        code.text += bytes((0x0F, how, 0xC1))  # of xmm0 and xmm1
        append(0x11, 0, RCX)
        code.step(RCX, size)
        code.step(RAX, size)
        code.again(RDX, some)
        code.here(none)
