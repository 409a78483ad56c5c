"""OpCase: one operation, its inputs and the right answer; run_case tries it on a device.

An operator's tests are a list of cases; every device runs the same ones::

    from polydevice.ops.softmax import SoftMax
    from polydevice.testing.op_case import OpCase, run_case

    def test_softmax(device):
        x = np.array([[0.0, np.log(3.0)]], np.float32)
        run_case(OpCase(SoftMax(axis=1), [x], expected=[[[0.25, 0.75]]]), device)

`expected` comes from outside the code under test: literals worked by hand, `onnx.reference`, or
another runtime. It may be a function of the inputs. `run_case` checks in this order

1. that the shape rule gives the answer's element types and shapes from static inputs, the rank at
   least unless whole numbers that are no constants may decide it,
2. that it gives types and shapes that admit them when sizes, and then ranks, are unknown,
3. that the device, which loads the network once, computes the answer within the tolerance: from
   the inputs, from other inputs, which a function tells the answer of, and from the first again,
   each time at another alignment, and without a change to what it reads.

Inputs that shape inference needs as numbers (Reshape's target, a reduction's axes) are listed in
`constants`; the network then holds them as Constant nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import field
from functools import partial
from typing import Any

import numpy as np

from polydevice.dataclass import dataclass
from polydevice.dtype import Array, ElementType
from polydevice.errors import PolydeviceError
from polydevice.network import Network
from polydevice.node import Node
from polydevice.ops.io import Constant, Parameter, Result
from polydevice.ops.op import Op
from polydevice.ops.pointwise import BinaryPointwise
from polydevice.shape import Dim, Shape
from polydevice.tensor import TensorDesc
from polydevice.testing.inference import (
    Compute,
    Inference,
    compare,
    network_inference,
    placed,
    rolled,
)

Oracle = Callable[[Sequence[Array]], Sequence[Any]]
"""Returns the outputs for given inputs; raises LookupError for inputs that it cannot answer."""
Expected = Sequence[Any] | Oracle
Answers = Sequence[Array | None]


@dataclass(frozen=True)
class OpCase:
    """One operation applied to given inputs, with the answer.

    Attributes:
        op: the operation with its attributes.
        inputs: one array per input, in order.
        expected: one array per output (None: that output is not compared), or a function that
            returns them for the inputs that it is given.
        tolerance: (relative, absolute) instead of the table `TOLERANCES`.
        constants: positions of the inputs that the network holds as constants; True for all.
        element_types: element types of inputs whose NumPy type does not tell (``{1: u1}``).
        dynamic: whether the shape rule is also tried with unknown sizes and ranks.
        others: inputs of the second inference, constants included. Left out they are the first,
            each moved on by one along an axis: the same numbers, so that they stay legal.
    """

    op: Op
    inputs: Sequence[Array]
    expected: Expected
    tolerance: tuple[float, float] | None = None
    constants: Collection[int] | bool = ()
    element_types: Mapping[int, ElementType] = field(default_factory=dict)
    dynamic: bool = True
    others: Sequence[Array] | None = None

    def is_constant(self, index: int) -> bool:
        """Whether the network holds that input as a constant."""
        return self.constants if isinstance(self.constants, bool) else index in self.constants

    @property
    def takes_numbers(self) -> bool:
        """Whether axes or the like, on which the number of axes may depend, are not constant."""
        return any(
            self.element_type(i).is_integer and not self.is_constant(i)
            for i in range(len(self.inputs))
        )

    def element_type(self, index: int) -> ElementType:
        """Element type of an input."""
        return self.element_types.get(index) or ElementType.of(self.inputs[index].dtype)

    def answers(self, inputs: Sequence[Array] | None = None) -> Answers:
        """Return what is expected for the inputs, or for others.

        Raises:
            LookupError: when it is not known for others.
        """
        if callable(self.expected):
            found = self.expected(self.inputs if inputs is None else inputs)
        elif inputs is None:
            found = self.expected
        else:
            raise LookupError(f"{self.op}: the answer is known for the inputs of the case only")
        return [None if item is None else np.asarray(item) for item in found]

    def other_inputs(self) -> Sequence[Array]:
        """Return the inputs of the second inference; constants are those of the case."""
        if self.others is not None:
            return self.others
        return [rolled(a) if self._is_data(i) else a for i, a in enumerate(self.inputs)]

    def _is_data(self, index: int) -> bool:
        """Whether any order of the numbers in an input is legal; not so for offsets and indices."""
        if self.is_constant(index):
            return False
        whole = self.element_type(index).is_integer
        return index == 0 or not whole or isinstance(self.op, BinaryPointwise)


def network_of(case: OpCase) -> Network:
    """Build Parameter → op → Result; parameters are named ``input0``… and results ``output0``…."""
    nodes: list[Node] = []
    for index, array in enumerate(case.inputs):
        kind = case.element_type(index)
        if case.is_constant(index):
            nodes.append(Node(f"input{index}", Constant(np.asarray(array), kind)))
        else:
            nodes.append(Node(f"input{index}", Parameter(kind, Shape(array.shape))))
    node = Node("op", case.op, [n.output for n in nodes])
    results = [
        Node(f"output{i}", Result(output_name=f"output{i}"), [port])
        for i, port in enumerate(node.outputs)
    ]
    parameters = [n for n in nodes if isinstance(n.op, Parameter)]
    return Network(case.op.type, parameters, results)


def run_case(
    case: OpCase,
    device: str,
    *,
    compute: Compute | None = None,
    network: Network | None = None,
) -> None:
    """Check shape inference, run the case on `device` and compare with the expected outputs.

    Args:
        case: what to run.
        device: a device string such as "CPU" or "GPU".
        compute: computes the operation on arrays directly, instead of a network on `device`.
        network: the case as a network, such as one read from a file; its inputs must have the names
            that `network_of` gives them, its outputs the order. None for `network_of(case)`.

    Raises:
        AssertionError: when something differs, naming operation, output and the worst element.
        UnsupportedNetworkError: when the device does not have the operation.
    """
    expected = case.answers()
    network = network or network_of(case)
    described = [result.output.desc for result in network.results]
    assert len(described) == len(expected), (
        f"{case.op}: {len(described)} outputs, {len(expected)} expected"
    )
    for index, (desc, answer) in enumerate(zip(described, expected, strict=True)):
        assert desc.shape is not None or case.takes_numbers, f"{case.op} output {index}: no rank"
        _check_desc(f"{case.op} output {index}", desc, answer)
    if case.dynamic:
        _check_dynamic(case, described, expected)
    made = (
        network_inference(network, device)
        if compute is None
        else nullcontext(partial(compute, case.op))
    )
    others = case.other_inputs()
    with made as infer:
        trial = _Trial(case, device, described, infer)
        trial.check("", case.inputs, expected, shift=0)
        try:
            unlike = case.answers(others)
        except LookupError:
            with suppress(PolydeviceError):  # it may refuse them, and must forget them
                infer([placed(array, shift=1) for array in others])
        else:
            trial.check("other inputs, ", others, unlike, shift=1)
        trial.check("the first inputs again, ", case.inputs, expected, shift=2)


@dataclass(frozen=True)
class _Trial:
    """A case that is loaded on a device."""

    case: OpCase
    device: str
    described: Sequence[TensorDesc]
    infer: Inference

    def check(self, which: str, inputs: Sequence[Array], expected: Answers, shift: int) -> None:
        """Infer from copies of the inputs; compare the outputs, and the copies with the inputs."""
        given = [placed(array, shift) for array in inputs]
        outputs = self.infer(given)
        assert len(outputs) == len(expected)
        what = f"{self.case.op} on {self.device}: {which}"
        for i, (output, desc) in enumerate(zip(outputs, self.described, strict=True)):
            answer = expected[i]
            if answer is not None:
                compare(f"{what}output {i}", np.asarray(output), desc, answer, self.case.tolerance)
        for i, (copy, array) in enumerate(zip(given, inputs, strict=True)):
            assert copy.tobytes() == array.tobytes(), f"{what}input {i} was written"


def _check_desc(what: str, desc: TensorDesc, answer: Array | None) -> None:
    assert desc.element_type is not ElementType.dynamic, f"{what}: element type was not inferred"
    if answer is None:
        return
    if desc.is_static:
        assert desc.shape == answer.shape, f"{what}: inferred {desc}, expected {answer.shape}"
    elif desc.shape is not None:
        assert desc.shape.admits(answer.shape), f"{what}: inferred {desc} excludes {answer.shape}"
    if answer.dtype.kind not in "OU":
        wanted = answer.dtype
        assert desc.element_type.dtype == wanted or _is_literal(answer), (
            f"{what}: inferred type {desc.element_type}, expected {wanted}"
        )


def _is_literal(answer: Array) -> bool:
    """Whether the answer's type may only be NumPy's default for a nested list of literals."""
    return answer.dtype in (np.dtype(np.float64), np.dtype(np.int64), np.dtype(np.bool_))


def _check_dynamic(
    case: OpCase, static: Sequence[TensorDesc], expected: Sequence[Array | None]
) -> None:
    """Give every input that is not a constant unknown sizes, then unknown rank."""
    for level in ("bounded", "sizes", "ranks"):
        descs = []
        for index, array in enumerate(case.inputs):
            shape: Shape | None = Shape([None] * array.ndim)
            if case.is_constant(index):
                constant = Constant(np.asarray(array), case.element_type(index))
                descs.append(constant.infer([])[0])
                continue
            if level == "bounded":
                shape = Shape(Dim(max(n - 1, 0), n + 2) for n in array.shape)
            elif level == "ranks":
                shape = None
            descs.append(TensorDesc(case.element_type(index), shape))
        outputs = case.op.infer(descs)
        assert len(outputs) == len(static), f"{case.op}: outputs differ with unknown {level}"
        for index, (got, want, answer) in enumerate(zip(outputs, static, expected, strict=True)):
            what = f"{case.op} output {index} with unknown {level}"
            assert got.element_type is want.element_type, f"{what}: type {got.element_type}"
            if answer is not None and got.shape is not None:
                assert got.shape.admits(answer.shape), f"{what}: {got} excludes {answer.shape}"
