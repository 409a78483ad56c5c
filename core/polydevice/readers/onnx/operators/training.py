"""Operators of training: Dropout, which does nothing in inference, and optimiser steps."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import ElementType
from polydevice.node import Port
from polydevice.ops.arithmetic import Add, Divide, Multiply, Power, Subtract
from polydevice.ops.broadcast import Broadcast
from polydevice.ops.comparison import Equal, GreaterEqual
from polydevice.ops.convert import Convert
from polydevice.ops.math import Sqrt
from polydevice.ops.random import RandomUniform
from polydevice.ops.reshape import ShapeOf
from polydevice.ops.select import Select
from polydevice.readers.onnx.catalog import translates
from polydevice.readers.onnx.node import OnnxNode

_TRAINING = "ai.onnx.preview.training"


@translates("Dropout")
def dropout(n: OnnxNode) -> list[Port]:
    """Nothing is dropped in inference; in training, random elements are."""
    x, ratio, training = n.input(0), n.optional(1), n.optional(2)
    if training is not None and n.version >= 12:
        active = training.desc.constant
        if active is None or active.any():
            return _training_dropout(n, x, ratio, training)
    outputs = [x]
    if n.wants(1):
        kind = np.bool_ if n.version >= 10 else x.element_type.dtype
        one = n.value(np.ones((), kind))
        outputs.append(n.emit(Broadcast(), one, n.emit(ShapeOf(), x)))
    return outputs


def _training_dropout(n: OnnxNode, x: Port, ratio: Port | None, training: Port) -> list[Port]:
    """Keep elements whose random number reaches the ratio, enlarged by 1 / (1 - ratio)."""
    rate = n.value(np.float32(0.5)) if ratio is None else n.emit(Convert(ElementType.f32), ratio)
    zero, one = n.value(np.float32(0)), n.value(np.float32(1))
    rate = n.emit(Select(), training, rate, zero)
    op = RandomUniform(ElementType.f32, global_seed=0, op_seed=int(n.attribute("seed", 0) or 0))
    numbers = n.emit(op, n.emit(ShapeOf(), x), zero, one)
    kept = n.emit(GreaterEqual(), numbers, rate)
    factor = n.emit(Convert(x.element_type), n.emit(Divide(), one, n.emit(Subtract(), one, rate)))
    y = n.emit(Select(), kept, n.emit(Multiply(), x, factor), n.like(0, x))
    return [y, kept]


def _groups(n: OnnxNode, per_tensor: int) -> list[list[Port]]:
    """Split the inputs behind rate and step count: all X, then all G, then all states."""
    rest = [n.input(i) for i in range(2, len(n.inputs))]
    if len(rest) % per_tensor:
        raise n.unsupported(f"{len(rest)} tensors are not a multiple of {per_tensor}")
    count = len(rest) // per_tensor
    return [rest[i::count] for i in range(count)]


def _times(n: OnnxNode, factor: object, x: Port) -> Port:
    return n.emit(Multiply(), factor if isinstance(factor, Port) else n.like(factor, x), x)


def _decayed(n: OnnxNode, rate: Port) -> Port:
    """rate / (1 + step * decay_factor)."""
    decay = n.attribute("decay_factor", 0.0)
    if not decay:
        return rate
    step = n.emit(Convert(rate.element_type), n.input(1))
    return n.emit(Divide(), rate, n.emit(Add(), _times(n, decay, step), n.like(1, rate)))


def _regularized(n: OnnxNode, x: Port, gradient: Port) -> Port:
    return n.emit(Add(), _times(n, n.attribute("norm_coefficient", 0.0), x), gradient)


def _transposed(groups: list[list[Port]]) -> list[Port]:
    return [port for ports in zip(*groups) for port in ports]


@translates("Momentum", domain=_TRAINING)
def momentum(n: OnnxNode) -> list[Port]:
    """Stochastic gradient descent with standard or Nesterov momentum."""
    rate, step = n.input(0), n.input(1).desc.constant
    alpha, beta = n.required("alpha"), n.required("beta")
    if beta != 1 and step is None:
        first = n.emit(Equal(), n.input(1), n.like(0, n.input(1)))
        weight: object = n.emit(Select(), first, n.like(1, rate), n.like(beta, rate))
    else:
        weight = 1.0 if step is not None and not step.any() else beta
    made = []
    for x, gradient, velocity in _groups(n, 3):
        regular = _regularized(n, x, gradient)
        new = n.emit(Add(), _times(n, alpha, velocity), _times(n, weight, regular))
        change = new
        if n.required("mode") == "nesterov":
            change = n.emit(Add(), regular, _times(n, alpha, new))
        made.append([n.emit(Subtract(), x, _times(n, rate, change)), new])
    return _transposed(made)


@translates("Adagrad", domain=_TRAINING)
def adagrad(n: OnnxNode) -> list[Port]:
    """Steps divided by the root of the summed squared gradients."""
    rate = _decayed(n, n.input(0))
    made = []
    for x, gradient, squares in _groups(n, 3):
        regular = _regularized(n, x, gradient)
        new = n.emit(Add(), squares, n.emit(Multiply(), regular, regular))
        root = n.emit(Add(), n.emit(Sqrt(), new), n.like(n.attribute("epsilon", 0.0), x))
        change = n.emit(Divide(), _times(n, rate, regular), root)
        made.append([n.emit(Subtract(), x, change), new])
    return _transposed(made)


@translates("Adam", domain=_TRAINING)
def adam(n: OnnxNode) -> list[Port]:
    """Steps by running averages of the gradient and of its square."""
    rate, step = n.input(0), n.input(1)
    alpha, beta = n.attribute("alpha", 0.9), n.attribute("beta", 0.999)
    count = step.desc.constant
    corrected = rate
    if count is None or count.any():
        corrected = _bias_correction(n, rate, step, alpha, beta)
    made = []
    for x, gradient, average, square in _groups(n, 4):
        regular = _regularized(n, x, gradient)
        new = n.emit(Add(), _times(n, alpha, average), _times(n, 1 - alpha, regular))
        squared = n.emit(Multiply(), regular, regular)
        spread = n.emit(Add(), _times(n, beta, square), _times(n, 1 - beta, squared))
        root = n.emit(Add(), n.emit(Sqrt(), spread), n.like(n.attribute("epsilon", 0.0), x))
        change = n.emit(Divide(), _times(n, corrected, new), root)
        moved = n.emit(Subtract(), x, change)
        post = n.attribute("norm_coefficient_post", 0.0)
        made.append([_times(n, 1 - post, moved), new, spread])
    return _transposed(made)


def _bias_correction(n: OnnxNode, rate: Port, step: Port, alpha: float, beta: float) -> Port:
    """rate * sqrt(1 - beta^step) / (1 - alpha^step); rate itself at step 0."""
    count = n.emit(Convert(rate.element_type), step)
    one = n.like(1, rate)
    spread = n.emit(Sqrt(), n.emit(Subtract(), one, n.emit(Power(), n.like(beta, rate), count)))
    mean = n.emit(Subtract(), one, n.emit(Power(), n.like(alpha, rate), count))
    start = n.emit(Equal(), step, n.like(0, step))
    safe = n.emit(Select(), start, one, mean)
    factor = n.emit(Select(), start, one, n.emit(Divide(), spread, safe))
    return n.emit(Multiply(), rate, factor)
