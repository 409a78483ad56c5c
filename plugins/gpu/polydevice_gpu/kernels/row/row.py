"""Rows: elements that share some coordinates, gathered into one or two numbers.

Reductions store what was gathered; softmax and normalisations apply it to every element of the row.
A long row is cut into parts for many work-groups, whose numbers a second launch joins (means and
variances as in Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing
sample variances", 1979), always in the same order.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence

from polydevice.dataclass import dataclass
from polydevice.dtype import ElementType
from polydevice.shape import is_one
from polydevice.symbolic_size import is_symbolic, number_of
from polydevice.symbolic_trace import chosen, gains
from polydevice_gpu.graph import GpuNode, Value
from polydevice_gpu.kernels.addressing import step_along
from polydevice_gpu.kernels.kernel import Kernel, Mode
from polydevice_gpu.kernels.launch import Launch, Scratch
from polydevice_gpu.kernels.reason import NO_FLOATS, NO_LOCAL_MEMORY, unless
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.kernels.types import c_type, compute_type
from polydevice_gpu.layout import collapse

APART = "terms of a row do not lie side by side"
LEAST_TERMS_OF_PART = 16
NEIGHBOURS = 32
"""Rows that one group gathers where they lie side by side and their terms do not."""

CACHE_LINE = 16
"""The same on processor cores."""


@dataclass(frozen=True)
class Formula:
    """What is gathered from a row and made of it, as OpenCL C.

    Attributes:
        start: the accumulator of the first sweep before any term.
        combine: accumulator ``a`` and term ``v``.
        join: accumulators ``a`` and ``v``; "" for the same as `combine`.
        centre: what the second sweep is about, of the first one's ``a`` over ``n`` terms.
        term: what a term ``v`` adds in the second sweep, about ``centre``; "" for no such sweep.
        part: what a part of ``n`` terms adds to the whole, that gathered ``a`` and ``b`` about
            ``own``.
        finish: a reduction's result, of ``a``.
        scale: of a row, of ``a`` and ``b``; "" for reductions.
        result: element ``v`` of a row, with ``centre`` and ``scale``.
    """

    start: str
    combine: str
    join: str = ""
    centre: str = "0"
    term: str = ""
    part: str = ""
    finish: str = "a"
    scale: str = ""
    result: str = ""

    def declare(self, call: Call) -> None:
        """Define the macros of the .cl files for rows."""
        call.define(START=self.start, SWEEPS=2 if self.term else 1, ELEMENTWISE=bool(self.scale))
        macros = {
            "COMBINE(a, v)": self.combine,
            "JOIN_FIRST(a, v)": self.join or self.combine,
            "CENTRE(a, n)": self.centre,
            "TERM(v)": self.term,
            "JOINED(b, a, own, n)": self.part,
            "FINISH(a)": self.finish,
            "SCALE(a, b)": self.scale,
            "RESULT(v)": self.result,
        }
        call.define(**{name: f"({text})" for name, text in macros.items() if text})


@dataclass(frozen=True)
class Rows:
    """The rows of a tensor.

    Attributes:
        kept: the axes that rows differ in, the densest last.
        axes: the axes along a row, the densest last.
        count: number of rows.
        length: terms of a row.
        side_by_side: whether rows are neighbours in memory, and not the terms of a row.
        contiguous: whether the terms of a row are neighbours in memory.
    """

    kept: tuple[int, ...]
    axes: tuple[int, ...]
    count: int
    length: int
    side_by_side: bool
    contiguous: bool

    @classmethod
    def of(cls, x: Value, axes: Sequence[int]) -> Rows:
        """Return the rows of `x` along `axes`; the order of terms is that of memory."""
        order = x.placed.order(x.shape)
        kept = tuple(axis for axis in order if axis not in axes)
        along = tuple(axis for axis in order if axis in axes)
        rows, step = _innermost(x, kept)
        terms, pitch = _innermost(x, along)
        contiguous = pitch == 1 and not is_one(terms)
        return cls(
            kept,
            along,
            math.prod(x.shape[axis] for axis in kept),
            math.prod(x.shape[axis] for axis in along),
            side_by_side=not contiguous and step == 1 and chosen(lambda: rows >= NEIGHBOURS // 2),
            contiguous=contiguous,
        )


def _innermost(x: Value, axes: Sequence[int]) -> tuple[int, int]:
    """Return size and pitch of what steps evenly through memory at the end of some axes."""
    blocks = collapse([(x.shape[axis], x.placed.pitches[axis]) for axis in axes])
    return blocks[-1] if blocks else (1, 0)


class RowKernel(Kernel):
    """Gathers rows; subclasses say of which axes and by what formula, and who gathers."""

    source = "row/row.cl"

    # -- what is computed -------------------------------------------------------------------------

    @abstractmethod
    def axes(self, node: GpuNode) -> Sequence[int]:
        """Return the axes along a row; they are known."""

    @abstractmethod
    def formula(self, node: GpuNode) -> Formula:
        """Return what is gathered."""

    def sum_type(self, node: GpuNode) -> ElementType:
        """Return the type of what is gathered: that in which the input's elements are computed."""
        storage = node.inputs[0].storage
        return ElementType.f32 if compute_type(storage) == "float" else storage

    @abstractmethod
    def declare_result(self, call: Call, rows: Rows) -> None:
        """Declare the result, addressed by row, and by term where every element has one."""

    def declare_constants(self, call: Call) -> None:
        """Declare what the formula refers to, if anything."""

    # -- how --------------------------------------------------------------------------------------

    def rows(self, node: GpuNode) -> Rows:
        """Return the rows of the node's input."""
        return Rows.of(node.inputs[0], self.axes(node))

    def steps_evenly(self, node: GpuNode) -> bool:
        """Whether all terms of a row are neighbours: what is read in vectors has no gap inside."""
        x, rows = node.inputs[0], self.rows(node)
        return step_along(x.placed, x.shape, [rows.kept, rows.axes]) == 1

    def terms(self, node: GpuNode) -> int:
        """Return the length of a row."""
        return math.prod(node.inputs[0].shape[axis] for axis in self.axes(node))

    def mode_supports(self, node: GpuNode, mode: Mode, target: Target) -> bool:
        """The group fits the device."""
        return mode.get("LANES", 1) <= target.max_work_group_size

    def default_mode(self, node: GpuNode, target: Target) -> int:
        """The mode with the least expected time; parts have some terms each."""
        terms = self.terms(node)

        def cost(index: int) -> float:
            mode = self.modes[index]
            fits = self.mode_supports(node, mode, target)
            fits = fits and (mode["PARTS"] == 1 or terms >= LEAST_TERMS_OF_PART * mode["PARTS"])
            return self.expected_us(node, index, target) if fits else math.inf

        return min(range(len(self.modes)), key=cost)

    def expected_us(self, node: GpuNode, number: int, target: Target) -> float:
        """Return the expected time of a mode, in µs."""
        formula = self.formula(node)
        sweeps = 1 + bool(formula.term) + bool(formula.scale)
        expected = _expected_us if target.is_throughput else _expected_on_cores_us
        return expected(self.rows(node), sweeps, self.modes[number], target)

    def launches(self, node: GpuNode, mode: Mode, target: Target) -> list[Launch]:
        """Return the gathering, and the joining if rows are cut into parts."""
        rows = self.rows(node)
        length = -(-rows.length // mode["PARTS"])
        parts = max(1, -(-rows.length // max(length, 1)))
        call = Call(self.name, self.source, node, target)
        self._declare(call, rows, mode, length)
        call.define(ENTRY=self.name, IN_PARTS=mode["PARTS"] > 1)
        if mode["PARTS"] == 1:
            self.declare_result(call, rows)
            _dispatch(call, rows, mode, 1)
            return [call.launch()]
        formula = self.formula(node)
        storage = self.sum_type(node)
        scratch = {"FIRSTS": Scratch(parts * rows.count, storage)}
        if formula.term:
            scratch["SECONDS"] = Scratch(parts * rows.count, storage)
        join = Call("row_join", "row/row_join.cl", node, target)
        self._declare(join, rows, mode, length)
        for role, piece in scratch.items():
            call.buffer(role, piece, c_type(storage), written=True)
            join.buffer(role, piece, c_type(storage))
        join.scalars(PARTS=parts)
        self.declare_result(join, rows)
        _dispatch(call, rows, mode, parts)
        _dispatch(join, rows, mode, parts if formula.scale else 1)
        return [call.launch(), join.launch()]

    def _declare(self, call: Call, rows: Rows, mode: Mode, length: int) -> None:
        call.tensor("IN0", call.node.inputs[0], [rows.kept, rows.axes])
        self.formula(call.node).declare(call)
        self.declare_constants(call)
        call.define(SUM_T=c_type(self.sum_type(call.node)))
        lanes = mode.get("LANES", 1)
        call.define(LANES=lanes, TOGETHER=_together(rows, lanes))
        call.define(WIDTH=_terms_in_flight(rows, mode, call.target))
        # On processor cores a plain loop becomes vectors; four by four take twice the time.
        call.define(STORED=4 if call.target.is_throughput else 1)
        call.scalars(ROWS=rows.count, COUNT=rows.length, LENGTH=length)


class RowGroup(RowKernel):
    """A work-group gathers a row or a part of it, its lanes joining through local memory."""

    modes = (
        {"LANES": 64, "PARTS": 1},
        {"LANES": 256, "PARTS": 1},
        *({"LANES": 256, "PARTS": parts} for parts in (8, 32, 128, 512)),
    )
    least_terms = 64
    """Shorter rows leave lanes idle."""

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Rows long enough to keep a work-group busy, on devices with real local memory."""
        refused = super().refuses(node, target)
        refused = refused or unless((target.local_memory_bytes, NO_LOCAL_MEMORY))
        if refused:
            return refused
        terms = self.terms(node)
        is_long = chosen(lambda: terms >= self.least_terms)
        return unless((is_long, f"rows of {terms} leave lanes idle"))


class RowHeld(RowKernel):
    """A warp gathers a row whose terms it keeps in registers, and stores what becomes of them."""

    source = "row/row_held.cl"
    modes = ({"HEIGHT": 4}, {"HEIGHT": 1})
    most_terms = 2048
    """Sixteen fours for each lane: more would not stay in registers."""

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Rows of floats in fours, side by side in memory, on devices whose warps share values."""
        warps = target.warp_shuffle and target.is_throughput
        if refused := super().refuses(node, target) or unless((warps, "no warps share values")):
            return refused
        terms = self.terms(node)
        held = gains(lambda: 4 <= terms <= self.most_terms and terms % 4 == 0, by_chance=True)
        return unless(
            (compute_type(node.inputs[0].storage) == "float", NO_FLOATS),
            (held, f"rows of {terms} are not 4 to {self.most_terms} in fours"),
            (held and self.steps_evenly(node), APART),
        )

    def mode_supports(self, node: GpuNode, mode: Mode, target: Target) -> bool:
        """The group fits the device."""
        return mode["HEIGHT"] * target.scalar_lanes <= target.max_work_group_size

    def default_mode(self, node: GpuNode, target: Target) -> int:
        """Several rows for each group where there are more than processors."""
        return 0 if self.rows(node).count >= 4 * target.compute_units else 1

    def declare_result(self, call: Call, rows: Rows) -> None:
        """One element for each of the input, in fours."""
        call.result([rows.kept, rows.axes], (4,))

    def launches(self, node: GpuNode, mode: Mode, target: Target) -> list[Launch]:
        """Return the launch."""
        rows, lanes = self.rows(node), target.scalar_lanes
        call = Call(self.name, self.source, node, target)
        call.tensor("IN0", node.inputs[0], [rows.kept, rows.axes], (4,))
        self.formula(node).declare(call)
        self.declare_constants(call)
        held = _fours(rows.length, lanes)
        call.define(ENTRY=self.name, LANES=lanes, HELD=held, HEIGHT=mode["HEIGHT"])
        call.scalars(ROWS=rows.count, COUNT=rows.length)
        self.declare_result(call, rows)
        call.dispatch((lanes, rows.count), (lanes, mode["HEIGHT"]))
        return [call.launch()]


def _fours(length: int, lanes: int) -> int:
    """Return how many fours of a row each lane keeps; a power of two where lengths vary."""
    held = -(-length // (4 * lanes))
    if not is_symbolic(held):
        return held
    most: int = 1 << (number_of(held) - 1).bit_length()
    assert held <= most  # noted: a program for longer rows keeps more
    chosen(lambda: 2 * held > most)
    return most


class RowVector(RowKernel):
    """A work-item gathers a row in vectors, on processor cores."""

    source = "row/row_vector.cl"
    modes = ({"WIDTH": 8}, {"WIDTH": 16})
    least_terms = 16
    most_of_few = 8192
    """Terms of rows that are fewer than cores: longer ones are cut into parts."""

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Rows of floats side by side in memory, enough of them for all cores."""
        if refused := super().refuses(node, target) or unless(
            (not target.is_throughput, "rows are gathered by many lanes on this device")
        ):
            return refused
        terms, rows = self.terms(node), self.rows(node).count
        # What is left of a row goes one by one: shorter ones are served without a choice.
        is_long = number_of(terms) >= self.least_terms or gains(lambda: terms >= self.least_terms)
        enough = is_long and chosen(
            lambda: terms <= self.most_of_few or rows >= target.compute_units
        )
        return unless(
            (compute_type(node.inputs[0].storage) == "float", NO_FLOATS),
            (is_long, f"rows of {terms} are no vectors"),
            (enough, f"{rows} rows of {terms} are too few for all cores"),
            (is_long and self.steps_evenly(node), APART),
        )

    def mode_supports(self, node: GpuNode, mode: Mode, target: Target) -> bool:
        """Each serves all rows."""
        return True

    def default_mode(self, node: GpuNode, target: Target) -> int:
        """The device's vectors."""
        return int(target.vector_width >= self.modes[1]["WIDTH"])

    def launches(self, node: GpuNode, mode: Mode, target: Target) -> list[Launch]:
        """Return the launch."""
        rows, width = self.rows(node), mode["WIDTH"]
        call = Call(self.name, self.source, node, target)
        call.vectors_anywhere()  # the end of a row is read in a vector
        call.tensor("IN0", node.inputs[0], [rows.kept, rows.axes], (width,))
        self.formula(node).declare(call)
        self.declare_constants(call)
        call.define(ENTRY=self.name, WIDTH=width)
        call.scalars(ROWS=rows.count, COUNT=rows.length)
        call.result([rows.kept, rows.axes], (width,))
        call.dispatch((rows.count,))
        return [call.launch()]


class RowRef(RowKernel):
    """A work-item gathers a row or a part of it."""

    modes = ({"PARTS": 1}, {"PARTS": 8}, {"PARTS": 64}, {"PARTS": 512})


def _together(rows: Rows, lanes: int) -> int:
    """Return how many rows a group gathers."""
    return min(NEIGHBOURS, lanes) if rows.side_by_side and lanes > 1 else 1


def _terms_in_flight(rows: Rows, mode: Mode, target: Target) -> int:
    """Return how many terms a work-item adds side by side: vectors on processor cores."""
    if target.is_throughput or "LANES" in mode:
        return 4
    is_long = rows.contiguous and chosen(lambda: rows.length >= 64)
    return 16 if is_long else 1


def _dispatch(call: Call, rows: Rows, mode: Mode, parts: int) -> None:
    if "LANES" in mode:
        lanes = mode["LANES"]
        groups = -(-rows.count // _together(rows, lanes))
        call.dispatch((groups * lanes, parts), (lanes, 1))
    elif rows.side_by_side and not call.target.is_throughput:
        call.dispatch((rows.count, parts), (CACHE_LINE, 1))
    elif parts > 1 and not call.target.is_throughput:
        call.dispatch((rows.count, parts), (1, 1))  # a group of many would stay on one core
    else:
        call.dispatch((rows.count, parts))


_START_US, _SECOND_LAUNCH_US, _GROUP_US = 5.0, 6.0, 0.7
_TERM_US, _FAR_TERM_US, _NEAR_BYTES = 0.05, 0.2, 16e6
_BYTES_PER_UNIT_US = 2e4
_LANES_OF_UNIT = 1024
"""Measured on an H200."""


def _expected_us(rows: Rows, sweeps: int, mode: Mode, target: Target) -> float:
    """Return the expected time in µs where lanes run in lockstep; terms are read `sweeps` times."""
    lanes, parts = mode.get("LANES", 1), mode["PARTS"]
    together = _together(rows, lanes)
    group = lanes if lanes > 1 else target.scalar_lanes
    items = -(-rows.count // together) * lanes * parts
    waves = max(1.0, items / (target.compute_units * max(_LANES_OF_UNIT, group)))
    steps = rows.length / parts / max(lanes // together, 1)
    # Neighbours that read far apart fetch eight times what they use.
    apart = lanes > 1 and together == 1 and not rows.contiguous
    bytes_ = 4.0 * rows.count * rows.length * (8 if apart else 1)
    term = _TERM_US if bytes_ <= _NEAR_BYTES else _FAR_TERM_US  # beyond caches
    waiting = waves * (steps * term * sweeps + _GROUP_US)
    moving = sweeps * bytes_ / (target.compute_units * _BYTES_PER_UNIT_US)
    time = _START_US + max(waiting, moving)
    if parts > 1:
        time += _SECOND_LAUNCH_US + sweeps * parts / max(lanes // together, 1) * _TERM_US
    return time


_CORE_TERM_US, _CORE_CACHED_TERMS = 2e-4, 65_536
_CORE_SCATTERED_TERM_US, _CORE_LINES = 1.5e-3, 8192
_CORE_SECOND_LAUNCH_US, _CORE_GROUP_US = 40.0, 0.2


def _expected_on_cores_us(rows: Rows, sweeps: int, mode: Mode, target: Target) -> float:
    """Return the expected time in µs on processor cores."""
    parts = mode["PARTS"]
    length = rows.length / parts
    together = CACHE_LINE if rows.side_by_side else 1
    groups = -(-rows.count // together) * parts
    rounds = -(-groups // target.compute_units)
    if not rows.contiguous:  # each term is a cache line, and many are more than a cache holds
        term = _CORE_SCATTERED_TERM_US * (1 + min(3.0, length / _CORE_LINES))
    else:
        term = _CORE_TERM_US * (1.0 if length <= _CORE_CACHED_TERMS else 1.1)
    time = sweeps * rounds * together * length * term
    return time + (_CORE_SECOND_LAUNCH_US + groups * _CORE_GROUP_US if parts > 1 else 0)
