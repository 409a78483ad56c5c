"""OpenVINO as the oracle; an operation goes to it as a one-layer IR, attributes included.

Its reference implementation is asked where it has one; `tests/conformance` asks its CPU plugin, so
that the operations of both are held against two implementations.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from polydevice.dtype import Array
from polydevice.network import Network
from polydevice.ops.op import Op
from polydevice.testing.inference import shared_core
from polydevice.testing.op_case import OpCase, network_of
from tests.conformance.case import Case, Input, ir_of
from tests.conformance.oracle import oracle


@dataclass(frozen=True)
class OpenVinoCase(OpCase):
    """A case that OpenVINO answers, and that both runtimes can read from one IR.

    Attributes:
        opset: what the IR names; None for the newest that has the operation.
    """

    opset: int | None = None

    def question(self) -> Case:
        """Return the case as it is written to IR."""
        return Case(
            self.op.type,
            self.opset or self.op.since[-1],
            tuple(
                Input(np.asarray(array), self.is_constant(i), str(self.element_types.get(i, "")))
                for i, array in enumerate(self.inputs)
            ),
            self.op.to_ir(),
            outputs=len(network_of(self).results),
        )

    def read(self) -> Network:
        """Read the operation back from IR."""
        return shared_core().read_network(*ir_of(self.question()))


def openvino_case(
    op: Op,
    *inputs: Array,
    opset: int | None = None,
    reference: bool | None = None,
    **settings: Any,
) -> OpenVinoCase:
    """Make a case whose expected outputs come from OpenVINO when it runs.

    Args:
        op: the operation.
        inputs: its inputs.
        opset: what the IR names; the newest that has the operation otherwise.
        reference: True asks OpenVINO's reference implementation alone, False its CPU plugin, which
            computes in f32 and i32; None the first where it has one.
        settings: the other attributes of `OpCase`.
    """
    case = OpenVinoCase(op, inputs, (), opset=opset, **settings)

    def expected(values: Sequence[Array]) -> list[Array]:
        return oracle(replace(case.question(), reference=reference))(values)

    return replace(case, expected=expected)


def wide_case(
    op: Op,
    *inputs: Array,
    constants: Collection[int] | bool = (),
    opset: int | None = None,
    **settings: Any,
) -> OpCase:
    """Make a case in f16 or bf16 whose answer is OpenVINO's in f32, rounded to the type."""
    narrow = inputs[0].dtype

    def widened(values: Sequence[Array]) -> list[Array]:
        return [v.astype(np.float32) if v.dtype == narrow else v for v in values]

    wide = openvino_case(op, *widened(inputs), constants=constants, opset=opset)

    def expected(values: Sequence[Array]) -> list[Array]:
        answers = wide.answers(wide.inputs if values is inputs else widened(values))
        return [a.astype(narrow) if a.dtype == np.float32 else a for a in answers]

    return OpCase(op, inputs, expected, constants=constants, **settings)
