"""Integer products whose answers are worked out by hand: odd weights, ranks and zero points."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from polydevice import Core, ElementType, Shape
from polydevice.errors import InternalError
from polydevice.network import Network
from polydevice.node import Node, Port, constant
from polydevice.ops.arithmetic import Add, Multiply, Subtract
from polydevice.ops.convert import Convert
from polydevice.ops.io import Parameter, Result
from polydevice.ops.math import Abs
from polydevice.ops.matmul import MatMul
from polydevice.ops.quantize_linear import DequantizeLinear
from polydevice.rewrites.integers.compressed import compressed
from polydevice.rewrites.integers.integer_product import check_same
from polydevice_cpu.onednn.library import library

pytestmark = pytest.mark.skipif(library() is None, reason="needs oneDNN")


def _on_cpu(result: Port, parameters: list[Node], **feeds: np.ndarray) -> np.ndarray:
    """Run what computes one value, on the CPU device."""
    network = Network("n", parameters, [Node("y/result", Result(output_name="y"), [result])])
    with Core() as core:
        executable = core.load_network(network, "CPU")
        executable.infer(feeds)
        return executable.infer(feeds)["y"]


def _byte_input(*sizes: int, zero: int = 3) -> tuple[Node, Port]:
    x = Node("x", Parameter(ElementType.u8, Shape(sizes)))
    parameters = [constant("s", np.float32(0.1)).output, constant("z", np.uint8(zero)).output]
    return x, Node("dq", DequantizeLinear(), [x.output, *parameters]).output


def test_weights_in_narrow_floats_keep_their_fractions() -> None:
    """(10 - 3) * 0.1 * 0.5 * 0.1 * 4 = 0.14."""
    x, source = _byte_input(2, 4)
    stored = np.full((4, 3), 0.5, ml_dtypes.float8_e4m3fn)
    weights = [constant("w", stored).output, constant("ws", np.float32(0.1)).output]
    product = Node("y", MatMul(), [source, Node("dw", DequantizeLinear(), weights).output])
    answer = _on_cpu(product.output, [x], x=np.full((2, 4), 10, np.uint8))
    np.testing.assert_allclose(answer, np.full((2, 3), 0.14), rtol=1e-6)


def test_matrices_are_taken_apart_where_all_of_them_is_known() -> None:
    stored = constant("w", np.arange(8, dtype=np.int8).reshape(2, 4)).output
    scales = constant("s", np.float32(3)).output, Node("x", Parameter(ElementType.f32, Shape([])))
    matrix = Node("dw", DequantizeLinear(), [stored, scales[0]]).output
    found = compressed(matrix, turned=True)
    assert found is not None and (found.q == np.arange(8).reshape(2, 4)).all()
    assert found.scales.tolist() == [[3], [3]]
    later = Node("dw", DequantizeLinear(), [stored, scales[1].output]).output
    assert compressed(later, turned=True) is None, "the scale is an input"
    narrow = constant("w", np.ones((2, 4), ml_dtypes.float8_e4m3fn)).output
    assert (
        compressed(Node("dw", DequantizeLinear(), [narrow, scales[0]]).output, turned=True) is None
    )


def test_integers_become_floats_without_a_proved_primitive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """(10 - 3) * 0.1 = 0.7, once as a result and once within a sum."""
    monkeypatch.setattr("polydevice_cpu.lowering.integers.refusal", lambda _: "wrong numbers")
    x, source = _byte_input(2, 5)
    one = constant("one", np.float32(1)).output
    given = np.full((2, 5), 10, np.uint8)
    np.testing.assert_allclose(_on_cpu(source, [x], x=given), np.full((2, 5), 0.7), rtol=1e-6)
    more = Node("y", Add(), [source, one]).output
    np.testing.assert_allclose(_on_cpu(more, [x], x=given), np.full((2, 5), 1.7), rtol=1e-6)


@pytest.mark.parametrize("zero", [0, 1, 3])
def test_a_function_of_integers_times_the_same(zero: int) -> None:
    """v |v| with v = (x - zero) * 0.1: x may be a factor as it is only where its zero is 0."""
    x, source = _byte_input(2, 5, zero=zero)
    product = Node("y", Multiply(), [Node("abs", Abs(), [source]).output, source])
    given = np.arange(10, dtype=np.uint8).reshape(2, 5)
    value = (given - float(zero)) / 10
    answer = _on_cpu(product.output, [x], x=given)
    np.testing.assert_allclose(answer, value * np.abs(value), rtol=1e-6)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_vector_times_a_stack_of_matrices(seed: int) -> None:
    rng = np.random.default_rng(seed)
    given, stored = rng.integers(0, 256, 4, np.uint8), rng.integers(-9, 10, (5, 4, 3), np.int8)
    x, source = _byte_input(4)
    weights = [constant("w", stored).output, constant("ws", np.float32(0.5)).output]
    product = Node("y", MatMul(), [source, Node("dw", DequantizeLinear(), weights).output])
    answer = _on_cpu(product.output, [x], x=given)
    np.testing.assert_allclose(
        answer, (given.astype(float) - 3) * 0.1 @ (stored * 0.5), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("terms", [64, 4096])
def test_sums_that_cancel_with_a_zero_point_of_run_time(terms: int) -> None:
    """Bytes near their zero point: the sums are above 2^24, what is left of them is small."""
    rng = np.random.default_rng(terms)
    stored = rng.integers(60, 128, (terms, 3), np.int8)
    x, zero = (
        Node(name, Parameter(ElementType.u8, Shape(sizes)))
        for name, sizes in (("x", [1, terms]), ("zero", []))
    )
    wide = [
        Node(f"{port.name}/wide", Convert(destination_type=ElementType.i32), [port]).output
        for port in (x.output, zero.output, constant("w", stored).output)
    ]
    product = Node("p", MatMul(), [Node("d", Subtract(), wide[:2]).output, wide[2]])
    last = Node("y", Convert(destination_type=ElementType.f32), [product.output])
    given = np.full((1, terms), 200, np.uint8)
    given[0, 7] = 201
    answer = _on_cpu(last.output, [x, zero], x=given, zero=np.uint8(200))
    np.testing.assert_array_equal(answer, stored[7:8].astype(np.float32))


def test_a_rewrite_that_changes_a_shape_is_an_internal_error() -> None:
    before = Node("p", Parameter(ElementType.f32, Shape([2, 3])))
    for kind, sizes in ((ElementType.f32, [1, 2, 3]), (ElementType.i32, [2, 3])):
        made = Node("q", Parameter(kind, Shape(sizes)))
        with pytest.raises(InternalError, match="LP_TRANSFORMS_MODE=NO"):
            check_same(made.output, before.output)
    check_same(Node("q", Parameter(ElementType.f32, Shape([2, 3]))).output, before.output)
