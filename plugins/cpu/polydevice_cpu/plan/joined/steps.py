"""Steps that machine code computes together with what is done to each of their results then.

What is larger than the caches is read and written once: of 56x56 positions of 96 channels,
HardSigmoid, a rounding, a product and another rounding take 260 us apart and 120 together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from polydevice_cpu.algorithms.by_machine.code import Code
from polydevice_cpu.algorithms.by_machine.instructions import ADD, MUL
from polydevice_cpu.algorithms.by_machine.reductions import layer_norm
from polydevice_cpu.algorithms.by_machine.rows import chain as chains
from polydevice_cpu.algorithms.by_machine.rows import elementwise
from polydevice_cpu.algorithms.by_machine.small import Form
from polydevice_cpu.onednn.constants import Arg
from polydevice_cpu.plan.instead_of_primitives import (
    ROWS_READ,
    in_order,
    joined_axis,
    joining,
    normalising,
    own_chain,
)
from polydevice_cpu.plan.step import BY_ROWS, ArrayStep, CodeStep, PrimitiveStep, Step
from polydevice_cpu.plan.value import Kind, Storage, Value

_POINTWISE = ("binary", "eltwise")
_HEADS = ("layer_normalization", "concat")


def joined_steps(steps: Sequence[Step], outputs: Sequence[Value | None]) -> list[Step]:
    """Return steps of which some are several: functions of one another's results.

    A value between two must not be read elsewhere. Only for plans of one's own: what takes the
    place of another one's step has to give the same bits.
    """
    touched: Counter[Storage] = Counter()
    for step in steps:
        touched.update({value.storage.root for value in step.values})
    touched.update(value.storage.root for value in outputs if value is not None)
    found: list[Step] = []
    group: _Group | None = None
    for step in steps:
        if group is not None and group.takes(step, touched):
            continue
        found += [] if group is None else group.emitted()
        group = _started(step)
        found += [step] if group is None else []
    return found + ([] if group is None else group.emitted())


def _started(step: Step) -> _Group | None:
    """A step that others may join; None for another one."""
    if not _may_join(step, (*_POINTWISE, *_HEADS)) or not isinstance(step, PrimitiveStep):
        return None
    group = _Group(step)
    if step.primitive.kind in _POINTWISE:
        return group if group.adds(step, step.arguments[Arg.SRC]) else None
    result = step.arguments[Arg.DST]
    group.frame = _form(result) if result.strides is not None else None
    return group if result.has_no_gaps and group.frame is not None else None


def _may_join(step: Step, kinds: Sequence[str]) -> bool:
    if not isinstance(step, PrimitiveStep) or step.strips or step.blocks:
        return False
    made = step.primitive
    return made.kind in kinds and made.threads == 1 and Arg.SCRATCHPAD not in step.arguments


def _form(value: Value) -> Form:
    """How a value lies; only of one that is in no blocks."""
    steps = value.strides or ()
    return value.shape, tuple(step * value.dtype.itemsize for step in steps)


@dataclass
class _Group:
    """Steps that may be one.

    Attributes:
        first: the one they begin with.
        steps: all of them.
        functions: what is done to each number.
        operands: what these read.
        lies: how each operand lies in the frame; None for one of a number for each, as these are.
        frame: how the numbers lie, where an operand has one for some of them; else in any order.
    """

    first: PrimitiveStep
    steps: list[PrimitiveStep | ArrayStep] = field(default_factory=list)
    functions: list[chains.Step] = field(default_factory=list)
    operands: list[Value] = field(default_factory=list)
    lies: list[Form | None] = field(default_factory=list)
    frame: Form | None = None

    def __post_init__(self) -> None:
        """Begin with the first one."""
        self.steps.append(self.first)

    @property
    def result(self) -> Value:
        """What the last one computes."""
        last = self.steps[-1]
        return last.outputs[0] if isinstance(last, ArrayStep) else last.arguments[Arg.DST]

    def takes(self, step: Step, touched: Counter[Storage]) -> bool:
        """Let a step join that computes functions of the result, which nobody else reads."""
        storage = self.result.storage.root
        if storage.kind is not Kind.ARENA or touched[storage] != 2:
            return False
        if isinstance(step, ArrayStep):
            if not self._adds_function(step):
                return False
            self.steps.append(step)
            return True
        if not _may_join(step, _POINTWISE) or not isinstance(step, PrimitiveStep):
            return False
        if not self.adds(step, self.result):
            return False
        self.steps.append(step)
        return True

    def _adds_function(self, step: ArrayStep) -> bool:
        """Add what machine code of its own does to each number of the result, in any order."""
        if step.function is None or self.first.primitive.kind in _HEADS:
            return False
        (read,), result = step.inputs, self.result
        is_same = read.storage.root is result.storage.root and read.elements == result.elements
        if not is_same or read.offset_bytes != result.offset_bytes or not result.has_no_gaps:
            return False
        self.functions.append(step.function)
        return True

    def adds(self, step: PrimitiveStep, source: Value) -> bool:
        """Add a step's functions, of this source; where they go from number to number alike."""
        chain = own_chain(step)
        if chain is None or chains.HELD in chain[0]:
            return False
        functions, operands = chain
        read, result = step.arguments[Arg.SRC], step.arguments[Arg.DST]
        if read.storage.root is not source.storage.root:
            if not operands or functions[0] not in (MUL, ADD):
                return False
            read, operands = operands[0], [read, *operands[1:]]  # which are the same turned round
            if read.storage.root is not source.storage.root:
                return False
        values = (read, result, *operands)
        if any(value.dtype != np.float32 or value.strides is None for value in values):
            return False
        if not (read.has_no_gaps and result.has_no_gaps and source.has_no_gaps):
            return False
        if (read.elements, _form(read)) != (source.elements, _form(result)):
            return False
        if any(value.storage.root is read.storage.root for value in operands):
            return False
        return self._adds(functions, operands, _form(read))

    def _adds(
        self, functions: Sequence[chains.Step], operands: Sequence[Value], frame: Form
    ) -> bool:
        is_rows = self.first.primitive.kind in _HEADS
        most = layer_norm.MOST_OPERANDS if is_rows else elementwise.MOST_OPERANDS
        if len(self.operands) + len(operands) > most:
            return False
        if is_rows and any(value.elements != 1 for value in operands):
            return False
        lies: list[Form | None] = []
        for value in operands:
            form = _form(value)
            if value.elements == 1:
                lies.append(((), ()))
            elif form == frame:
                lies.append(None)
            elif self.frame in (None, frame) and len(form[0]) == len(frame[0]):
                self.frame = frame
                lies.append(form)
            else:
                return False
        self.functions += functions
        self.operands += operands
        self.lies += lies
        return True

    def emitted(self) -> list[Step]:
        """Return one step, or as many as there are where there is no code for them."""
        code = self._code() if len(self.steps) > 1 else None
        if code is None:
            return list(self.steps)
        kind, arguments = self.first.primitive.kind, self.first.arguments
        if kind == "layer_normalization":
            inputs = [arguments[place] for place in ROWS_READ if place in arguments]
        elif kind == "concat":
            inputs = [value for index, value in sorted(arguments.items()) if index != Arg.DST]
        else:
            inputs = [arguments[Arg.SRC]]
        layers = [each for step in self.steps for each in step.layers or (step.name,)]
        name, types = self.steps[-1].name, "+".join(step.type for step in self.steps)
        inputs += self.operands
        return [CodeStep(name, types, code, inputs, [self.result], tuple(layers), BY_ROWS)]

    def _code(self) -> Code | None:
        kind = self.first.primitive.kind
        if kind in _HEADS:
            if kind == "concat":
                parts = [v for index, v in sorted(self.first.arguments.items()) if index != Arg.DST]
                values = [*parts, self.first.arguments[Arg.DST]]  # as which the result lies
                axis, then = joined_axis(values), (self.functions, len(self.operands))
                return None if axis is None else joining(values, axis, then=then)
            return normalising(self.first, self.functions)
        count = self.result.elements
        frame = self.frame or ((count,), (4,))
        own = (1,) * len(frame[0]), (0,) * len(frame[0])
        forms = [frame if form is None else form if form[0] else own for form in self.lies]
        told = elementwise.prepared(self.functions, in_order([frame, *forms, frame]))
        return None if told is None else Code.of([told])
