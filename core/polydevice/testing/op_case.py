"""OpCase: one operation, its inputs and the right answer; run_case tries it on a device.

An operator's tests are a list of cases; every device runs the same ones::

    from polydevice.ops.softmax import SoftMax
    from polydevice.testing.op_case import OpCase, run_case

    def test_softmax(device):
        x = np.array([[0.0, np.log(3.0)]], np.float32)
        run_case(OpCase(SoftMax(axis=1), [x], expected=[[[0.25, 0.75]]]), device)

`expected` comes from outside the code under test: literals worked by hand, `onnx.reference`, or
another runtime. It may be a function without arguments, called once when the case runs.
`run_case` checks in this order

1. that the shape rule gives the answer's element types and shapes from static inputs,
2. that it gives types and shapes that admit them when sizes, and then ranks, are unknown,
3. that the device computes the answer within the tolerance, twice alike.

Inputs that shape inference needs as numbers (Reshape's target, a reduction's axes) are listed in
`constants`; the network then holds them as Constant nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.network import Network
from polydevice.node import Node
from polydevice.ops.io import Constant, Parameter, Result
from polydevice.ops.op import Op
from polydevice.shape import Dim, Shape
from polydevice.tensor import TensorDesc

Expected = Sequence[Any] | Callable[[], Sequence[Any]]
Compute = Callable[[Op, Sequence[Array]], Sequence[Array]]
"""Computes an operation on arrays without a network (the CPU plugin's `implement.run`)."""

TOLERANCES: Mapping[ElementType, tuple[float, float]] = {
    # (relative, absolute); sums of a few hundred terms in another order differ this much.
    ElementType.f64: (1e-6, 1e-9),  # runtimes compute f64 networks in f32 in places
    ElementType.f32: (1e-4, 1e-5),
    ElementType.f16: (5e-3, 5e-3),  # 11 bits; devices accumulate in f16 or f32
    ElementType.bf16: (2e-2, 2e-2),  # 8 bits
}
"""Tolerance of an output by its element type; other types must match exactly."""


@dataclass(frozen=True)
class OpCase:
    """One operation applied to given inputs, with the answer.

    Attributes:
        op: the operation with its attributes.
        inputs: one array per input, in order.
        expected: one array per output (None: that output is not compared), or a function that
            returns them.
        tolerance: (relative, absolute) instead of the table `TOLERANCES`.
        constants: positions of the inputs that the network holds as constants; True for all.
        element_types: element types of inputs whose NumPy type does not tell (``{1: u1}``).
        dynamic: whether the shape rule is also tried with unknown sizes and ranks.
    """

    op: Op
    inputs: Sequence[Array]
    expected: Expected
    tolerance: tuple[float, float] | None = None
    constants: Collection[int] | bool = ()
    element_types: Mapping[int, ElementType] = field(default_factory=dict)
    dynamic: bool = True

    def is_constant(self, index: int) -> bool:
        """Whether the network holds that input as a constant."""
        return self.constants if isinstance(self.constants, bool) else index in self.constants

    def element_type(self, index: int) -> ElementType:
        """Element type of an input."""
        return self.element_types.get(index) or ElementType.of(self.inputs[index].dtype)


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


def run_case(case: OpCase, device: str, *, compute: Compute | None = None) -> None:
    """Check shape inference, run the case on `device` and compare with the expected outputs.

    Args:
        case: what to run.
        device: a device string such as "CPU" or "GPU".
        compute: computes the operation on arrays directly, instead of a network on `device`.

    Raises:
        AssertionError: when something differs, naming operation, output and the worst element.
        UnsupportedNetworkError: when the device does not have the operation.
    """
    expected = [
        None if item is None else np.asarray(item)
        for item in (case.expected() if callable(case.expected) else case.expected)
    ]
    network = network_of(case)
    described = [result.output.desc for result in network.results]
    assert len(described) == len(expected), (
        f"{case.op}: {len(described)} outputs, {len(expected)} expected"
    )
    for index, (desc, answer) in enumerate(zip(described, expected, strict=True)):
        _check_desc(f"{case.op} output {index}", desc, answer)
    if case.dynamic:
        _check_dynamic(case, described, expected)
    for _ in range(2):
        outputs = (
            list(compute(case.op, case.inputs)) if compute else _run_network(case, network, device)
        )
        assert len(outputs) == len(expected)
        for index, (output, desc, answer) in enumerate(
            zip(outputs, described, expected, strict=True)
        ):
            if answer is not None:
                _compare(f"{case.op} output {index} on {device}", output, desc, answer, case)


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


def _compare(what: str, output: Array, desc: TensorDesc, answer: Array, case: OpCase) -> None:
    output = np.asarray(output)
    assert output.dtype == desc.element_type.dtype, f"{what}: type {output.dtype}, inferred {desc}"
    assert output.shape == answer.shape, f"{what}: shape {output.shape}, expected {answer.shape}"
    relative, absolute = case.tolerance or TOLERANCES.get(desc.element_type, (0.0, 0.0))
    if output.dtype == object or (relative == 0.0 and absolute == 0.0):
        equal = np.asarray(output == answer)
        assert equal.all(), _worst(what, output, answer, ~equal)
        return
    wide = np.complex128 if output.dtype.kind == "c" else np.float64
    got, want = output.astype(wide), answer.astype(wide)
    close = np.isclose(got, want, relative, absolute, equal_nan=True)
    assert close.all(), _worst(what, output, answer, ~close)


def _worst(what: str, output: Array, answer: Array, wrong: Array) -> str:
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    return (
        f"{what}: {int(wrong.sum())} of {wrong.size} elements differ; first at {list(first)}: "
        f"{output[first]!r}, expected {answer[first]!r}"
    )


def _run_network(case: OpCase, network: Network, device: str) -> list[Array]:
    """Run the network through the public API; the request is closed with its core."""
    from polydevice import Core

    given = {f"input{i}": a for i, a in enumerate(case.inputs) if not case.is_constant(i)}
    with Core() as core:
        outputs = core.load_network(network, device).create_infer_request().infer(given)
        return [np.array(outputs[result.name]) for result in network.results]
