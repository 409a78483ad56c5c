"""If, Loop and Scan with bodies that are grown like the network itself."""

from __future__ import annotations

import numpy as np
from onnx import ValueInfoProto, helper

from tests.fuzz.builder import Builder, RejectedError, Tensor
from tests.fuzz.data import partner, some, suited
from tests.fuzz.evaluate import type_of
from tests.fuzz.families import generates
from tests.fuzz.families.movement import indices

KEEPS_SHAPE = ("Relu", "Tanh", "Sigmoid", "Neg", "Abs", "Sin", "Identity")


def step(body: Builder, x: Tensor) -> Tensor:
    """Add operators to a body that keep a value's shape and type, and its size within bounds."""
    if x.dtype.kind == "O":
        return body.add("Identity", x)
    like = body.outer.find(lambda t: t.dtype == x.dtype and t.shape == x.shape)
    for _ in range(body.integer(1, 3)):
        if body.chance(0.6):
            x = body.add(body.choice(KEEPS_SHAPE), x)
        else:
            other = like if body.chance(0.6) else None
            other = other or body.constant(suited(x.dtype)(body.rng, x.shape))
            x = body.add(body.choice(("Add", "Sub", "Max")), x, other)
    return x


def declare(tensor: Tensor, known: bool = True) -> ValueInfoProto:
    """Return a body's declaration of a value, with or without its sizes."""
    shape = list(tensor.shape) if known else None
    return helper.make_value_info(tensor.name, type_of(tensor.value, shape))


@generates(4)
def branches(b: Builder):
    """If, with a condition that is constant, an input, or computed."""
    x = some(b, np.float32)
    flag = b.choice((True, False))
    graphs = []
    for _ in range(2):
        body = b.body()
        y = step(body, x)
        second = [body.add("Shape", x)] if len(b.nodes) % 2 else []
        graphs.append(body.graph([], [y, *second], declared=b.chance(0.9)))
    count = len(graphs[0].output)
    if len(graphs[1].output) != count:
        raise RejectedError("branches differ in outputs")
    condition = b.find(lambda t: t.dtype == bool and t.value.size == 1 and not t.rank)
    if condition is None:
        condition = indices(b, flag, np.bool_)
    return b.add("If", condition, outputs=count, then_branch=graphs[0], else_branch=graphs[1])


@generates(5)
def loop(b: Builder):
    """Loop with 0 to 4 trips, states, scan outputs and a condition."""
    x = some(b, np.float32)
    trips, more = b.choice((0, 1, 1, 2, 3, 4)), b.choice((True, True, True, False))
    body = b.body()
    number = Tensor(body.name(), np.array(0, np.int64))
    go_on = Tensor(body.name(), np.array(True))
    state = Tensor(body.name(), x.value)
    known = b.chance(0.7)
    inputs = [declare(number), declare(go_on), declare(state, known)]
    body.tensors += [number, go_on, state]
    after = step(body, state)
    limit = body.constant(np.int64(b.integer(0, 4)))
    ending = body.add("Less", number, limit) if b.chance(0.4) and b.opset >= 9 else None
    ending = ending or body.add("Identity", go_on)
    scans = [body.add(b.choice(("Neg", "Identity", "Abs")), after)] if b.chance(0.6) else []
    if b.chance(0.2):
        scans.append(body.add("Identity", number))
    graph = body.graph(inputs, [ending, after, *scans])
    if not known:
        if scans and not (trips and more):
            raise RejectedError("nobody knows the sizes of an item that is never made")
        for info in graph.output:
            info.type.tensor_type.ClearField("shape")
    else:
        for info, tensor in zip(graph.output, [ending, after, *scans]):
            info.CopyFrom(declare(tensor))
    first = indices(b, more, np.bool_) if b.chance(0.8) or not trips else None
    return b.add("Loop", indices(b, trips), first, x, outputs=1 + len(scans), body=graph)


@generates(4)
def scan(b: Builder):
    """Scan over an axis, forwards or backwards."""
    if b.opset < 9:
        raise RejectedError("Scan is generated from opset 9 on")
    x = some(b, np.float32)
    if not x.rank or not x.shape[0]:
        raise RejectedError("nothing to go over")
    axis = b.integer(0, x.rank - 1) if b.opset >= 11 else 0
    if not x.shape[axis]:
        raise RejectedError("nothing to go over")
    item = np.take(x.value, 0, axis)
    body = b.body()
    state = Tensor(body.name(), np.zeros_like(item))
    each = Tensor(body.name(), item)
    body.tensors += [state, each]
    total = body.add("Add", state, each)
    made = step(body, total)
    total = body.add("Tanh", total)
    graph = body.graph([declare(state), declare(each)], [total, made])
    attributes = {"scan_input_directions": [b.integer(0, 1)],
                  "scan_output_directions": [b.integer(0, 1)]}  # fmt: skip
    if b.opset >= 11:
        attributes |= {"scan_input_axes": [axis - x.rank if b.chance(0.3) else axis]}
        attributes |= {"scan_output_axes": [b.integer(0, item.ndim)]}
    start = b.constant(np.zeros_like(item))
    return b.add("Scan", start, x, outputs=2, body=graph, num_scan_inputs=1, **attributes)


@generates(1)
def mapped(b: Builder):
    """SequenceMap."""
    if b.opset < 17:
        raise RejectedError("SequenceMap came with opset 17")
    x = some(b, np.float32)
    s = b.add("SequenceConstruct", x, partner(b, x), x)
    body = b.body()
    each = Tensor(body.name(), x.value)
    body.tensors.append(each)
    y = body.add(b.choice(KEEPS_SHAPE), each)
    graph = body.graph([declare(each, known=False)], [y])
    graph.output[0].type.tensor_type.ClearField("shape")
    mapped_ = b.add("SequenceMap", s, body=graph)
    return b.add("SequenceAt", mapped_, np.int64(b.integer(0, 2)))
