"""Random convolutions and products by every code that oneDNN has for them, a process each.

What is only wrong is found by trials (`polydevice_cpu.proof`), too. What writes beyond its memory,
or ends the process, has to be known: `polydevice_cpu.onednn.defects`.
"""

from __future__ import annotations

import argparse
import ctypes as c
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np

from polydevice_cpu.onednn import defects, primitive
from polydevice_cpu.onednn.attributes import Attributes, Binary, Eltwise, Quantisation
from polydevice_cpu.onednn.constants import Algorithm, Arg, DataType, Query
from polydevice_cpu.onednn.descriptor import Descriptor, required
from polydevice_cpu.onednn.primitive import Primitive
from polydevice_cpu.onednn.primitives import convolution, deconvolution, matmul
from polydevice_cpu.proof.claim import Claim, Link
from polydevice_cpu.proof.trial import failure

SECONDS = 60
"""A case may take this long: plain loops and code that goes through single numbers do."""
KINDS = {
    "u8": DataType.U8,
    "s8": DataType.S8,
    "f32": DataType.F32,
    "bf16": DataType.BF16,
    "f16": DataType.F16,
}
BYTES = (DataType.U8, DataType.S8)
CHANNELS = (1, 2, 3, 4, 8, 10, 12, 16, 16, 20, 24, 32, 33, 40, 48, 64, 96)
LENGTHS = (1, 2, 3, 5, 8, 16, 17, 31, 32, 33, 48, 49, 64, 65, 100, 128, 200)
REFERENCE = "ref:any", "conv:any+ref:any", None
FOUND = 3
"""Exit status where code that would be taken writes beyond its memory."""

Make = Callable[[DataType, DataType, DataType, Attributes], Primitive | None]


@dataclass(frozen=True)
class Case:
    """Something that oneDNN computes.

    Attributes:
        text: what it is.
        make: makes it for types of source, weights and result.
        rank: of the result.
        axis: of the result's channels, or columns.
        outputs: how many there are; with groups, the first is their number.
        source: type of the numbers that are multiplied.
        zero: what is subtracted from the source.
        has_scales: whether there is one for each output.
        has_relu: whether it is fused.
    """

    text: str
    make: Make
    rank: int
    axis: int
    outputs: tuple[int, ...]
    source: DataType
    zero: int
    has_scales: bool
    has_relu: bool

    @property
    def is_of_bytes(self) -> bool:
        """Whether integers are multiplied."""
        return self.source in BYTES

    def made(self) -> Primitive | None:
        """The primitive; None where there is none, or not by the code that is asked for."""
        post_ops = [Eltwise(Algorithm.RELU, 0.0, 0.0)] if self.has_relu else []
        if not self.is_of_bytes:
            return self.make(self.source, self.source, self.source, Attributes(post_ops))
        axes = range(len(self.outputs))
        first = 0 if self.axis == 1 else self.axis
        mask = sum(1 << first + each for each in axes) if self.has_scales else 0
        scaled = [Quantisation(Arg.WEIGHTS, mask)]
        if self.zero:
            scaled.append(Quantisation(Arg.SRC, None, 0))
        return self.make(self.source, DataType.S8, DataType.F32, Attributes(post_ops, scaled))

    def claim(self, made: Primitive) -> Claim:
        """What is tried of the primitive."""
        links = []
        if self.is_of_bytes:
            count = int(np.prod(self.outputs)) if self.has_scales else 1
            row, shape = Descriptor.dense((count,)), [1] * self.rank
            shape[self.axis] = count
            scales = Binary(Algorithm.BINARY_MUL, row)
            links.append(Link(scales, Arg.ATTR_SCALES | Arg.WEIGHTS, row, tuple(shape)))
        if self.has_relu:
            links.append(Link(Eltwise(Algorithm.RELU, 0.0, 0.0)))
        return Claim(made, self._base, links, self.zero, self.text)

    def _base(self) -> Primitive:
        plain = partial(self.make, DataType.F32, DataType.F32, DataType.F32, Attributes())
        for code in REFERENCE:
            made = plain() if code is None else by(code, plain)
            if made is not None:
                return made
        raise AssertionError(f"oneDNN cannot compute {self.text} in f32")


def by(code: str, make: Callable[[], Primitive | None]) -> Primitive | None:
    """Return what is made by this code; None where it is not among those that oneDNN offers."""

    def is_found(_kind: str, description: c.c_void_p, _arguments: Sequence[Any]) -> bool:
        return any(name == code for name in _codes(description))

    # Without what was made before, by other code.
    with patch.object(primitive, "passes_over", is_found), patch.dict(primitive._MADE, clear=True):
        return make()


def codes_of(make: Callable[[], Primitive | None]) -> dict[str, bool]:
    """Return all codes that oneDNN offers, and whether `defects` says that they are wrong."""
    found: dict[str, bool] = {}

    def note(kind: str, description: c.c_void_p, arguments: Sequence[Any]) -> bool:
        for name in _codes(description):
            is_known = kind != "matmul"
            found[name] = is_known and defects.is_wrong(name, defects.Form.of(kind, arguments))
        return False

    with patch.object(primitive, "passes_over", note), patch.dict(primitive._MADE, clear=True):
        make()
    return found


def _codes(description: c.c_void_p) -> Any:
    """The codes of a description, which is moved from one to the next, and let go in the end."""
    library, name = required(), c.c_char_p()
    while True:
        library.call("primitive_desc_query", description, Query.IMPL_INFO, 0, c.byref(name))
        assert name.value is not None
        yield name.value.decode()
        if library.value("primitive_desc_next_impl", description):
            library.destroy("primitive_desc_destroy", description)
            return


def drawn(seed: int, number: int, kinds: Sequence[str]) -> Case | None:
    """Return a case at random, the same one for the same numbers; None where it has no results."""
    rng = np.random.default_rng([seed, number])

    def one_of(*values: Any) -> Any:
        return values[int(rng.integers(len(values)))]

    source = KINDS[one_of(*kinds)]
    rest = (source, one_of(0, 3, 7) if source in BYTES else 0, one_of(True, False))
    make = one_of(_product, _convolution, _convolution, _transposed)
    shaped = make(rng, one_of)
    return None if shaped is None else Case(*shaped, *rest, one_of(True, False))


def _product(rng: np.random.Generator, one_of: Callable[..., Any]) -> Any:
    rows, terms, columns = (int(one_of(*LENGTHS)) for _ in range(3))
    batch = [one_of(1, 1, 2, 3) for _ in range(one_of(0, 0, 1, 2))]
    gap, is_packed = one_of(0, 0, 1, 16), one_of(True, False)
    steps = [terms + gap, 1]
    for size in (rows, *reversed(batch[1:])) if batch else ():
        steps.insert(0, steps[0] * size)
    weights, rank = (*[1] * len(batch), terms, columns), len(batch) + 2

    def make(kind: DataType, to: DataType, result: DataType, attributes: Attributes) -> Any:
        return matmul(
            Descriptor.strided((*batch, rows, terms), steps, kind),
            Descriptor.any(weights, to) if is_packed else Descriptor.dense(weights, to),
            None,
            Descriptor.dense((*batch, rows, columns), result),
            attributes,
        )

    text = f"{[*batch, rows, terms]} x {list(weights)}, {gap} between rows"
    return text, make, rank, rank - 1, (columns,)


def _convolution(
    rng: np.random.Generator, one_of: Callable[..., Any], *, is_transposed: bool = False
) -> Any:
    rank = one_of(1, 2, 2, 2, 3)
    groups, batch = one_of(1, 1, 1, 2, 3, 4), one_of(1, 1, 2, 3)
    channels, results = one_of(*CHANNELS), one_of(*CHANNELS)
    if groups > 1 and one_of(True, False):
        channels = results = 1
    window = [one_of(1, 1, 2, 3, 3, 3, 4, 5, 7) for _ in range(rank)]
    steps = [one_of(1, 1, 1, 2, 2, 3, 4) for _ in range(rank)]
    gaps = [one_of(1, 1, 1, 2, 3) for _ in range(rank)] if one_of(True, False) else [1] * rank
    extents = [(size - 1) * gap + 1 for size, gap in zip(window, gaps, strict=True)]
    most = one_of(1, 1, 2)
    begin = [int(rng.integers(0, most * extent + 1)) for extent in extents]
    end = [int(rng.integers(0, most * extent + 1)) for extent in extents]
    how = one_of("none", "half", "any")
    if how != "any":
        begin, end = ([(e - 1) // 2 if how == "half" else 0 for e in extents] for _ in "be")
    largest = one_of(3, 6, 12, 20, 40) if rank < 3 else one_of(2, 4, 7, 12)
    sizes = [int(rng.integers(1, largest + 1)) for _ in range(rank)]
    axes = list(zip(sizes, extents, steps, begin, end, strict=True))
    if is_transposed:
        wanted = [step * (n - 1) + e - a - b for n, e, step, a, b in axes]
        wanted = [n + int(rng.integers(0, step)) for n, step in zip(wanted, steps, strict=True)]
        axes = list(zip(sizes, extents, steps, begin, wanted, strict=True))
        end = [step * (n - 1) + e - a - o for n, e, step, a, o in axes]
    else:
        sizes = [max(n, e - a - b, 1) for n, e, _, a, b in axes]
        axes = list(zip(sizes, extents, steps, begin, end, strict=True))
        wanted = [(n + a + b - e) // step + 1 for n, e, step, a, b in axes]
        axes = list(zip(sizes, extents, steps, begin, wanted, strict=True))
        end = [step * (o - 1) + e - a - n for n, e, step, a, o in axes]
    if min(wanted) < 1:
        return None
    outputs = (groups, results) if groups > 1 else (results,)
    form = deconvolution if is_transposed else convolution

    def make(kind: DataType, to: DataType, result: DataType, attributes: Attributes) -> Any:
        return form(
            Descriptor.channels_last((batch, groups * channels, *sizes), kind),
            Descriptor.any((*outputs, channels, *window), to),
            None,
            Descriptor.channels_last((batch, groups * results, *wanted), result),
            *(steps, gaps, begin, end, attributes),
        )

    text = (
        f"{form.__name__} {[batch, groups * channels, *sizes]} -> {[groups * results, *wanted]}, "
        f"groups {groups}, window {window}, steps {steps}, gaps {gaps}, borders {begin} {end}"
    )
    return text, make, rank + 2, 1, outputs


def _transposed(rng: np.random.Generator, one_of: Callable[..., Any]) -> Any:
    return _convolution(rng, one_of, is_transposed=True)


def outcome(case: Case, code: str) -> str:
    """Return in which way code is wrong for a case, tried in a process of its own; "" if right."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(SECONDS)
        found = "raises an exception"
        try:
            made = by(code, case.made)
            found = failure(case.claim(made)) if made is not None else "not found again"
        finally:
            os.write(writing, (found or "right").encode()[:400])
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return "too slow" if number == signal.SIGALRM else f"ends the process (signal {number})"
    return "" if told == "right" else told


def is_of_memory(found: str) -> bool:
    """Whether something is wrong that must not even be tried in a program."""
    return "ends the process" in found or "writes outside" in found


def main() -> int:
    """Try random convolutions and products; exit status 3: something has to be passed over."""
    parser = argparse.ArgumentParser(prog="scripts/fuzz codes", description=main.__doc__)
    parser.add_argument("--minutes", type=float, default=2, help="how long (default: 2)")
    parser.add_argument("--seed", type=int, default=0, help="of everything (default: 0)")
    parser.add_argument("--start", type=int, default=0, help="number of the first case")
    parser.add_argument("--count", type=int, default=None, help="cases at most")
    parser.add_argument("--kinds", default="u8,s8", help=f"of {','.join(KINDS)} (default: u8,s8)")
    parser.add_argument("--codes", default="", help="parts of names of code, as amx,vnni")
    asked = parser.parse_args()
    until, number = time.monotonic() + 60 * asked.minutes, asked.start
    wanted, tried, unknown = asked.codes.split(","), Counter[str](), 0
    while time.monotonic() < until and asked.count != number - asked.start:
        case = drawn(asked.seed, number, asked.kinds.split(","))
        number += 1
        for code, is_known in codes_of(case.made).items() if case is not None else ():
            if not any(part in code for part in wanted):
                continue
            found = outcome(case, code)
            kind = "memory" if is_of_memory(found) else "wrong" if found else "right"
            tried[f"{code:60} {'passed over' if is_known else 'may run':12}{kind}"] += 1
            if kind == "memory" and not is_known:
                unknown += 1
                print(f"case {number - 1}: {code} {found}: {case.text}, zero {case.zero}")
    for line, count in sorted(tried.items()):
        print(f"{line:82}{count:8}")
    print(f"seed {asked.seed}, {number - asked.start} cases")
    return FOUND if unknown else 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
