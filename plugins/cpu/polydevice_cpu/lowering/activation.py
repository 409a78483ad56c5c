"""Pointwise functions of one value: fused into what computes it, or an eltwise primitive."""

from __future__ import annotations

import math as math_
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.emitter import Emitter
from polydevice.node import constant
from polydevice.ops import activation, arithmetic, math
from polydevice.ops.op import Op
from polydevice_cpu.algorithms.by_machine.code import has_vectors
from polydevice_cpu.algorithms.by_machine.functions import Activation
from polydevice_cpu.algorithms.by_machine.rows import pointwise
from polydevice_cpu.lower import lowers
from polydevice_cpu.onednn import openmp
from polydevice_cpu.onednn.attributes import Attributes, Eltwise, PostOp
from polydevice_cpu.onednn.constants import Algorithm, Arg
from polydevice_cpu.onednn.descriptor import Descriptor, row_major
from polydevice_cpu.onednn.primitive import Primitive
from polydevice_cpu.onednn.primitives import eltwise
from polydevice_cpu.plan.array_steps.start import starter
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.building.pending import Flow, Make, Packed, Pending
from polydevice_cpu.plan.step import MACHINE_CODE, ArrayStep, ByMachine, Compute, outputs_of
from polydevice_cpu.proof.claim import Claim, Link
from polydevice_cpu.proof.proof import refusal

if TYPE_CHECKING:
    from polydevice.node import Node, Port
    from polydevice_cpu.plan.building.builder import PlanBuilder

Rule = Callable[[Any, Sequence[float]], "Eltwise | None"]
"""(operation, the constant scalars among its further inputs) → oneDNN's function."""


def _always(algorithm: Algorithm, alpha: float = 0.0, beta: float = 0.0) -> Rule:
    return lambda _op, _scalars: Eltwise(algorithm, alpha, beta)


def _gelu(op: activation.Gelu, _scalars: Sequence[float]) -> Eltwise:
    erf = op.approximation_mode is activation.GeluApproximation.ERF
    return Eltwise(Algorithm.GELU_ERF if erf else Algorithm.GELU_TANH)


def _round(op: math.Round, _scalars: Sequence[float]) -> Eltwise | None:
    return Eltwise(Algorithm.ROUND) if op.mode is math.RoundMode.HALF_TO_EVEN else None


def _swish(_op: activation.Swish, scalars: Sequence[float]) -> Eltwise:
    return Eltwise(Algorithm.SWISH, scalars[0] if scalars else 1.0)


def _hard_sigmoid(_op: activation.HardSigmoid, scalars: Sequence[float]) -> Eltwise:
    return Eltwise(Algorithm.HARD_SIGMOID, scalars[0], scalars[1])


def _power(_op: arithmetic.Power, scalars: Sequence[float]) -> Eltwise | None:
    (exponent,) = scalars
    exact = {1.0: Algorithm.LINEAR, 2.0: Algorithm.SQUARE, 0.5: Algorithm.SQRT}
    if exponent not in exact:
        return None
    return Eltwise(exact[exponent], 1.0 if exponent == 1.0 else 0.0)


RULES: dict[type[Op], Rule] = {
    activation.Relu: _always(Algorithm.RELU),
    activation.Sigmoid: _always(Algorithm.LOGISTIC),
    activation.Clamp: lambda op, _: Eltwise(Algorithm.CLIP, op.min, op.max),
    activation.Elu: lambda op, _: Eltwise(Algorithm.ELU, op.alpha),
    activation.Gelu: _gelu,
    activation.HardSigmoid: _hard_sigmoid,
    activation.HSigmoid: _always(Algorithm.HARD_SIGMOID, 1 / 6, 0.5),
    activation.HSwish: _always(Algorithm.HARD_SWISH, 1 / 6, 0.5),
    activation.Mish: _always(Algorithm.MISH),
    activation.SoftPlus: _always(Algorithm.SOFT_RELU, 1.0),
    activation.Swish: _swish,
    arithmetic.Power: _power,
    math.Abs: _always(Algorithm.ABS),
    math.Exp: _always(Algorithm.EXP),
    math.Log: _always(Algorithm.LOG),
    math.Negative: _always(Algorithm.LINEAR, -1.0, 0.0),
    math.Round: _round,
    math.Sqrt: _always(Algorithm.SQRT),
    math.Tanh: _always(Algorithm.TANH),
}


def _lower_cube(builder: PlanBuilder, node: Node) -> bool:
    """x * x^2: oneDNN's POW calls powf for every element, 12 times as slow."""
    source = node.inputs[0]
    if node.output.element_type is not ElementType.f32 or node.output.shape != source.shape:
        return False  # an exponent of [1, 1] adds axes
    builder.value(source)  # both factors read it, so that it cannot be held back any longer
    build = Emitter(node.name, origins=node.layers)
    two = constant(f"{node.name}/two", np.float32(2)).output
    square = build.emit(arithmetic.Power(), source, two, name=f"{node.name}/square")
    build.emit(arithmetic.Multiply(), square, source)
    builder.lower_instead(node.output, build.emitted)
    return True


@lowers(activation.Selu)
def lower_selu(builder: PlanBuilder, node: Node) -> bool:
    """lambda * ELU: both are fused; 64x256 numbers took NumPy 76 us."""
    _, alpha, factor = (port.desc.constant for port in node.inputs)
    if node.output.element_type is not ElementType.f32 or alpha is None or factor is None:
        return False
    if alpha.size != 1 or factor.size != 1:
        return False
    slope = float(alpha.reshape(()))
    if not 0 <= slope < math_.inf:  # oneDNN's function is for these
        return False
    build = Emitter(node.name, origins=node.layers)
    curve = build.emit(activation.Elu(alpha=slope), node.inputs[0], name=f"{node.name}/elu")
    build.emit(arithmetic.Multiply(), curve, np.asarray(factor, np.float32).reshape(()))
    builder.lower_instead(node.output, build.emitted)
    return True


BY_MACHINE: dict[type[Op], Activation] = {
    activation.SoftPlus: Activation("softplus", 0, 0),
    activation.SoftSign: Activation("softsign", 0, 0),
    math.Erf: Activation("erf", 0, 0),
}
"""What machine code computes where oneDNN has no code, or none that is right: it takes softplus of
numbers near -4 to 1e-5 of themselves."""


@lowers(*{**RULES, **BY_MACHINE})
def lower_activation(builder: PlanBuilder, node: Node) -> bool:
    """Fuse or emit a pointwise function whose parameters are constant."""
    if type(node.op) in RULES and _by_onednn(builder, node):
        return True
    return type(node.op) in BY_MACHINE and _by_machine(builder, node)


def _by_machine(builder: PlanBuilder, node: Node) -> bool:
    """Compute by our own machine code, in any order of memory without gaps."""
    if node.output.element_type is not ElementType.f32 or not has_vectors():
        return False
    value = builder.value(node.inputs[0])
    if value.strides is None or not value.has_no_gaps or 0 in value.shape:
        return False
    value = builder.wide(value)
    result = builder.new(value.descriptor)
    function, threads = BY_MACHINE[type(node.op)], openmp.thread_count()
    compute = starter(node.op)
    sizes = (math_.prod(value.shape),)
    seen, target = (each.view(sizes, row_major(sizes)) for each in (value, result))

    def start(context: Context) -> Compute:
        return ByMachine(
            partial(_written, compute(context)),
            lambda values: pointwise.prepared(function, values[0].elements, threads),
            may_refuse=False,
        )

    step = ArrayStep(node.name, node.type, start, [seen], [target], MACHINE_CODE, writes=True)
    step.function = function if threads == 1 else None
    builder.emit(step)
    builder.set(node.output, result)
    return True


def _written(compute: Compute, x: Array, result: Array) -> tuple[()]:
    np.copyto(result, outputs_of(compute(x))[0])
    return ()


def _by_onednn(builder: PlanBuilder, node: Node) -> bool:
    scalars = []
    for port in node.inputs[1:]:
        known = port.desc.constant
        if known is None or known.size != 1:
            return False
        scalars.append(float(known.reshape(-1)[0]))
    if isinstance(node.op, arithmetic.Power) and scalars == [3.0]:
        return _lower_cube(builder, node)
    function = RULES[type(node.op)](node.op, scalars)
    return function is not None and apply(builder, node, node.inputs[0], [function])


def apply(builder: PlanBuilder, node: Node, source: Port, functions: Sequence[Eltwise]) -> bool:
    """Apply functions one after the other to `source`; False where oneDNN cannot."""
    (target,) = node.outputs
    if target.element_type is not ElementType.f32 or target.shape is None:
        return False
    held = builder.pending(source)
    if held is not None and held.extend(node, functions):
        builder.fused(node, source, held)
        return True
    value = builder.value(source)
    if not value.in_reach or value.shape != target.shape.static:
        return False
    layouts = [value.descriptor]
    if not value.is_dense:
        # Parts of a larger tensor: oneDNN may want them without gaps.
        layouts.append(Descriptor.dense(value.shape, value.descriptor.data_type))
    for layout in layouts:
        # All of them before any is emitted: the node may still go to another implementation.
        made = [_make(builder, node, layout, function) for function in functions]
        ready = [each for each in made if each is not None]
        if len(ready) == len(made):
            break
    else:
        return False
    if layout is not layouts[0]:
        value = builder.dense(value)
    *before, (make, primitive, links) = ready
    for first_make, first, first_links in before:
        flow: dict[int, Flow | Packed] = {Arg.SRC: Flow(value)}
        step = Pending(node, first_make, flow, first, builder.decisions, own_links=first_links)
        value = step.emit(builder)
    flow = {Arg.SRC: Flow(value)}
    builder.hold(target, Pending(node, make, flow, primitive, builder.decisions, own_links=links))
    return True


def _make(
    builder: PlanBuilder, node: Node, layout: Descriptor, function: Eltwise
) -> tuple[Make, Primitive, list[Link]] | None:
    """How to make the function's primitive, it, and what it computes; None without a right one."""

    def make(post_ops: Sequence[PostOp], _bias: bool) -> Primitive | None:
        # The eltwise primitive takes binary post-operations only.
        if any(isinstance(post_op, Eltwise) for post_op in post_ops):
            return None
        made = eltwise(
            function.algorithm,
            layout,
            layout,
            function.alpha,
            function.beta,
            Attributes(post_ops),
        )
        return None if made is None or made.is_reference else made

    primitive = make([], False)
    if primitive is None:
        return None
    links = [Link(function)]
    reason = refusal(Claim(primitive, None, links))
    if reason:
        builder.refuse(node.name, reason)
        return None
    return make, primitive, links
