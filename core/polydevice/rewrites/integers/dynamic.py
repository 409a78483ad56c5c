"""dynamic_products: products in i32 of what was quantised at run time become products of bytes."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.emitter import Emitter
from polydevice.network import Network
from polydevice.node import Evaluate, Node, Port, constant
from polydevice.ops.arithmetic import Add, Multiply, Subtract
from polydevice.ops.convert import Convert
from polydevice.ops.convolution import Convolution
from polydevice.ops.matmul import MatMul
from polydevice.ops.op import Op
from polydevice.rewrites.integers.integer_product import IntegerProduct, check_same
from polydevice.rewrites.integers.products import fits
from polydevice.rewrites.integers.quantised import NARROW, divided_integers_of
from polydevice.rewrites.integers.sums import may_lack, ones, whole
from polydevice.rewrites.pattern import Replacements


def dynamic_products(network: Network, *, wide: bool = False) -> None:
    """Replace MatMulInteger and ConvInteger whose results are all converted to f32."""
    users = network.consumers()
    replacements = Replacements()
    zeros: dict[Port, Port] = {}
    for node in network.nodes():
        if not isinstance(node.op, (MatMul, Convolution)):
            continue
        readers = [reader for reader, _ in users[node.output]]
        bias = _bias(node.output, readers)
        if bias is not None:
            readers = [reader for reader, _ in users[readers[0].output]]
        if node.output.element_type is not ElementType.i32 or not all(
            isinstance(reader.op, Convert) and reader.op.destination_type is ElementType.f32
            for reader in readers
        ):
            continue
        made = _made(node, network.evaluate, zeros, wide)
        for reader in readers if made else []:
            last, terms = reader, [each.output for each in made]
            for scaling in users[reader.output] if len(users[reader.output]) == 1 else []:
                scaled = [_scaled(each, reader.output, scaling[0], made[0]) for each in made]
                whole = [each.output for each in scaled if each is not None]
                if bias is None and len(whole) == len(made):
                    last, terms = scaling[0], whole
            if bias is not None:
                convert = Convert(destination_type=ElementType.f32)
                build = Emitter(f"{reader.name}/bias", origins=reader.layers)
                terms.append(build.emit(convert, bias))
            result = _sum(terms, last)
            check_same(result, last.output)
            replacements.put(last.output, result)
    replacements.apply(network)


def _bias(sums: Port, readers: list[Node]) -> Port | None:
    """What is added to sums of products before they are converted."""
    if len(readers) != 1 or not isinstance(readers[0].op, Add):
        return None
    left, right = readers[0].inputs
    bias = right if left is sums else left
    return None if bias is sums or readers[0].output.desc.rank != sums.desc.rank else bias


def _sum(terms: list[Port], last: Node) -> Port:
    """The sum of terms, in the place of a node."""
    result = terms[0]
    for number, term in enumerate(terms[1:], 2):
        build = Emitter(last.name, origins=last.layers)
        if number < len(terms):
            result = build.emit(Add(), result, term, name=f"{last.name}/terms")
        else:
            result = build.replacement(last, Add(), result, term)
    return result


def _made(node: Node, evaluate: Evaluate | None, zeros: dict[Port, Port], wide: bool) -> list[Node]:
    """What a product is the sum of: one of bytes, and where weights lack a number, that of x."""
    found = _source(node.inputs[0])
    divided = divided_integers_of(node.inputs[1], evaluate, _output_axis(node.op))
    if divided is not None and wide:
        divided = _with_lacking(node.op, *divided)
    if found is None or divided is None or not fits(node, divided[0]):
        return []
    (x, zero), (weights, lacking) = found, divided
    if lacking.any() and not may_lack(node.op, weights):
        return []
    if zero is None:
        zero = constant(f"{node.name}/zero", np.int32(0)).output
    elif isinstance(zero.node.op, Convert):  # each product of a model converts it again
        zero = zeros.setdefault(zero.node.inputs[0], zero)
    one = constant(f"{node.name}/factor", np.float32(1)).output
    scale = constant(f"{node.name}/scale", np.float32(1)).output
    inputs = [x, constant(f"{node.name}/weights", weights).output, scale, zero, one]
    build = Emitter(node.name, origins=node.layers)
    made = [build.emit(IntegerProduct(node.op), *inputs).node]
    if not lacking.any():
        return made
    inputs[1] = constant(f"{node.name}/ones", ones(node.op, weights, np.zeros(()))).output
    numbers = np.asarray(lacking, np.float32)
    if not numbers.ndim:
        inputs[2] = constant(f"{node.name}/lacking", numbers).output
        return [*made, build.emit(IntegerProduct(node.op), *inputs, name=f"{node.name}/sums").node]
    if not isinstance(node.op, MatMul):
        numbers = numbers.reshape(-1, *(1,) * (weights.ndim - 2))
    sums = build.emit(IntegerProduct(node.op), *inputs, name=f"{node.name}/sums")
    return [*made, build.emit(Multiply(), sums, numbers, name=f"{node.name}/lacking").node]


def _with_lacking(op: Op, weights: Array, lacking: Array) -> tuple[Array, Array]:
    """Weights as they are where i8 holds them, otherwise in i16, with what they lack there."""
    if not lacking.any() or not may_lack(op, weights):
        return weights, lacking
    shape = [1] * weights.ndim
    if lacking.ndim:
        shape[_output_axis(op)] = -1
    made = whole(op, weights, lacking.reshape(shape))
    return (weights, lacking) if made is None else (made, np.zeros((), np.int64))


def _output_axis(op: Op) -> int:
    """The axis of weights along which outputs lie."""
    if isinstance(op, MatMul):
        return -2 if op.transpose_b else -1
    return 0


def _scaled(term: Node, sums: Port, scaling: Node, product: Node) -> Node | None:
    """A term, and the product of two scales that sums are multiplied by, as one.

    Args:
        term: the product of bytes; or the sums of x, by themselves or times what weights lack.
        sums: what is multiplied.
        scaling: what multiplies it.
        product: of bytes.
    """
    if not isinstance(scaling.op, Multiply):
        return None
    left, right = scaling.inputs
    scale = right if left is sums else left
    if scale is sums or not isinstance(scale.node.op, Multiply):
        return None
    for given, factor in (scale.node.inputs, reversed(scale.node.inputs)):
        numbers = given.node.constant
        if numbers is None or not _is_one_number(factor) or numbers.dtype != np.float32:
            continue
        per_output = _per_output(product, numbers)
        if per_output is not None:
            return _times(term, per_output, factor, Emitter(scaling.name, origins=scaling.layers))
    return None


def _times(term: Node, numbers: Array, factor: Port, build: Emitter) -> Node:
    """A term times numbers, one or one for each output, and a factor."""
    lacking: Array = np.ones((), np.float32)
    inner = term
    if not isinstance(term.op, IntegerProduct):
        inner, known = term.inputs[0].node, term.inputs[1].node.constant
        assert known is not None
        lacking = known
    x, weights, own, zero, _factor, *rest = inner.inputs
    scale = own.node.constant
    assert scale is not None
    whole = np.asarray(scale * lacking * numbers, np.float32)
    is_behind = inner is not term or (whole.size > 1 and _has_one_output(inner))
    if is_behind:
        scale = np.ones((), np.float32)
    scales = constant(f"{inner.name}/scales", scale if is_behind else whole).output
    inputs = [x, weights, scales, zero, factor, *rest]
    made = build.emit(inner.op, *inputs, name=f"{inner.name}/scaled")
    if is_behind:
        made = build.emit(Multiply(), made, whole, name=f"{term.name}/lacking")
    return made.node


def _has_one_output(product: Node) -> bool:
    """Whether weights have one output, so that numbers of several cannot be its scale."""
    weights = product.inputs[1].node.constant
    assert weights is not None
    assert isinstance(product.op, IntegerProduct)
    return weights.ndim > 1 and weights.shape[_output_axis(product.op.product)] == 1


def _is_one_number(port: Port) -> bool:
    return port.element_type is ElementType.f32 and _is_single(port)


def _per_output(made: Node, numbers: Array) -> Array | None:
    """Numbers that broadcast to the product's result as its scale; None for others."""
    rank = made.output.desc.rank
    if rank is None or numbers.ndim > rank:
        return None
    if numbers.size == 1:
        return numbers.reshape(())
    product, weights = made.op, made.inputs[1].node.constant
    assert isinstance(product, IntegerProduct)
    assert weights is not None
    if weights.ndim < 2:
        return None
    if isinstance(product.product, MatMul):
        count, place = weights.shape[-2 if product.product.transpose_b else -1], rank - 1
    else:
        count, place = weights.shape[0], 1
    shape = tuple(count if axis == place else 1 for axis in range(rank))
    return numbers if (1,) * (rank - numbers.ndim) + numbers.shape == shape else None


def _source(port: Port) -> tuple[Port, Port | None] | None:
    """The bytes that a port's i32 values are, and their zero point in i32, one number."""
    node, zero = port.node, None
    if isinstance(node.op, Subtract):
        zero = node.inputs[1]
        node = node.inputs[0].node
        if not _is_single(zero) or zero.element_type is not ElementType.i32:
            return None
    if not isinstance(node.op, Convert) or node.inputs[0].element_type not in NARROW:
        return None
    x = node.inputs[0]
    return None if x.node.constant is not None else (x, zero)


def _is_single(port: Port) -> bool:
    """Whether a value is one number, with one axis at most."""
    return port.shape is not None and len(port.shape) <= 1 and all(n == 1 for n in port.shape)
