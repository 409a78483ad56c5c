"""The answer of one node by other people's runtimes: ONNX Runtime, or ONNX's reference."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper
from onnx.reference import ReferenceEvaluator

onnxruntime.set_default_logger_severity(4)

Value = Any
"""An array, a list of arrays (a sequence), or None (an empty optional)."""

RUNTIMES = ("onnxruntime", "reference")


MISTAKEN = {
    "StringNormalizer": "stop words stay unless the case is changed, and accents go",
    "Unique": "unsorted along a negative axis, it takes elements of the first one",
    "GlobalMaxPool": "in three dimensions the result has an axis too many",
    "Shape": "an end before the first axis is taken for one behind it",
}
"""What ONNX's reference gets wrong; it is not asked about these operators."""


NEWER_RULES = {"Softmax": 13, "LogSoftmax": 13, "Hardmax": 13, "BatchNormalization": 14}
"""Opsets before which ONNX's reference computes by later rules."""


def _undefined_elsewhere(node: onnx.NodeProto, feeds: Mapping[str, Value]) -> bool:
    """Say whether ONNX Runtime's answer is one of several.

    It calls the mean of nothing 0, and reducing nothing keeps an axis that a negative number names.
    With corners aligned it puts the one pixel of an axis at 1, ONNX's reference at -1.
    """
    if node.op_type == "AffineGrid" and any(
        a.name == "align_corners" and a.i for a in node.attribute
    ):
        return 1 in feeds[node.input[1]][2:]
    return node.op_type.startswith("Reduce") and not feeds[node.input[0]].size


def _mistaken(
    node: onnx.NodeProto, feeds: Mapping[str, Value], opsets: Sequence[onnx.OperatorSetIdProto]
) -> bool:
    """Say whether ONNX's reference is not to be believed, as `MISTAKEN` or for what is given.

    It takes types that an operator does not have, with the rules of a newer one, pools wrongly
    where pads differ, are to be found or sizes are rounded up (ONNX Runtime has other sizes for the
    types that it takes), and puts PyTorch's half pixels of an axis of one element outside of it.
    """
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type in MISTAKEN or _strange_types(node, feeds, opsets):
        return True
    if node.op_type in ("Erf", "Gelu") and feeds[node.input[0]].dtype == np.float64:
        return True  # it computes the error function in f32
    if any(not o.domain and o.version < NEWER_RULES.get(node.op_type, 0) for o in opsets):
        return True
    if node.op_type.endswith("Pool"):
        pads = list(attributes.get("pads", ()))
        found = attributes.get("auto_pad", b"NOTSET") != b"NOTSET" or attributes.get("ceil_mode")
        return bool(found) or pads[: len(pads) // 2] != pads[len(pads) // 2 :]
    return attributes.get("coordinate_transformation_mode") == b"pytorch_half_pixel"


def _strange_types(
    node: onnx.NodeProto, feeds: Mapping[str, Value], opsets: Sequence[onnx.OperatorSetIdProto]
) -> bool:
    """Say whether an input has a type that the operator does not take in this opset."""
    opset = next((o.version for o in opsets if o.domain == node.domain), None)
    if opset is None or not onnx.defs.has(node.op_type, opset, node.domain):
        return False
    formal = onnx.defs.get_schema(node.op_type, opset, node.domain).inputs
    for place, name in enumerate(node.input):
        value = feeds.get(name)
        if isinstance(value, np.ndarray) and formal:
            kind = onnx.TensorProto.DataType.Name(element_type(value.dtype)).lower()
            taken = formal[min(place, len(formal) - 1)].types
            if f"tensor({kind})" not in taken:
                return True
    return False


class Elsewhere:
    """Whether other people's code runs now: when the process dies of that, no device is to blame.

    `flag` is set to one that the parent process sees.
    """

    flag: Any = None

    def __enter__(self) -> None:
        if self.flag is not None:
            self.flag.value = 1

    def __exit__(self, *_: object) -> None:
        if self.flag is not None:
            self.flag.value = 0


ELSEWHERE = Elsewhere()


class RefusedError(Exception):
    """No other runtime could compute this node."""


def run_node(
    node: onnx.NodeProto,
    values: Mapping[str, Value],
    opsets: Sequence[onnx.OperatorSetIdProto],
    order: Sequence[str] = RUNTIMES,
) -> list[Value]:
    """Return the outputs of a node by the first runtime that accepts it.

    Args:
        node: with what its bodies take from outside found in `values`.
        values: name → value.
        opsets: of the model.
        order: runtimes to ask, in this order.

    Raises:
        RefusedError: when none accepts it.
    """
    needed = [name for name in dict.fromkeys([*node.input, *captured(node)]) if name]
    feeds = {name: values[name] for name in needed}
    reasons = []
    for runtime in order:
        if runtime == "reference" and _mistaken(node, feeds, opsets):
            continue
        if runtime == "onnxruntime" and _undefined_elsewhere(node, feeds):
            continue
        try:
            with ELSEWHERE, warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                run = _by_onnxruntime if runtime == "onnxruntime" else _by_reference
                return run(_single(node, feeds, opsets), feeds)
        except Exception as error:  # noqa: BLE001 - whatever they raise, the next one is asked
            reasons.append(f"{runtime}: {error}")
    raise RefusedError("; ".join(reasons))


def captured(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names that a node's bodies take from outside."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield from free_names(attribute.g)


def free_names(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the names that a graph uses and does not define."""
    known = {i.name for i in graph.input} | {i.name for i in graph.initializer}
    for node in graph.node:
        yield from (n for n in [*node.input, *captured(node)] if n and n not in known)
        known.update(node.output)
    yield from (o.name for o in graph.output if o.name not in known)


def element_type(dtype: np.dtype) -> int:
    """Return ONNX's number of a NumPy type; objects are strings."""
    if dtype.kind in "OUS":
        return onnx.TensorProto.STRING
    return helper.np_dtype_to_tensor_dtype(dtype)


def is_float(dtype: np.dtype) -> bool:
    """Say whether a type is a floating-point one, bfloat16 and float8 included."""
    return dtype.kind == "f" or dtype.name.startswith(("bfloat", "float"))


def type_of(value: Value, shape: Sequence[Any] | None = None) -> onnx.TypeProto:
    """Return the type of an array, or of a sequence of arrays."""
    if isinstance(value, list):
        inner = type_of(value[0]) if value else helper.make_tensor_type_proto(1, None)
        inner.tensor_type.ClearField("shape")
        return helper.make_sequence_type_proto(inner)
    return helper.make_tensor_type_proto(element_type(value.dtype), shape)


def _single(
    node: onnx.NodeProto, feeds: Mapping[str, Value], opsets: Sequence[onnx.OperatorSetIdProto]
) -> onnx.ModelProto:
    inputs = [helper.make_value_info(name, type_of(value)) for name, value in feeds.items()]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([node], "node", inputs, outputs)
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir_version(opsets))


def ir_version(opsets: Sequence[onnx.OperatorSetIdProto]) -> int:
    """Return the IR version that goes with the operator sets, at least 4."""
    newest = max(o.version for o in opsets if o.domain in ("", "ai.onnx"))
    table = helper.OP_SET_ID_VERSION_MAP
    return max(4, table.get(("ai.onnx", newest), onnx.IR_VERSION))


NEWEST_OF_ONNXRUNTIME = 26
"""Opset from which on it refuses models; operators that are older it runs in an older model."""


def _older(model: onnx.ModelProto) -> onnx.ModelProto:
    """Lower the opset to what ONNX Runtime takes where that changes no operator."""
    for opset in model.opset_import:
        newest = opset.version if opset.domain == "" else 0
        if newest > NEWEST_OF_ONNXRUNTIME and _since(model.graph, newest) <= NEWEST_OF_ONNXRUNTIME:
            opset.version = NEWEST_OF_ONNXRUNTIME
            model.ir_version = ir_version(model.opset_import)
    return model


def _since(graph: onnx.GraphProto, opset: int) -> int:
    """Return the newest version among a graph's operators, those of bodies included."""
    found = 0
    for node in graph.node:
        if not node.domain:
            found = max(found, onnx.defs.get_schema(node.op_type, opset).since_version)
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                found = max(found, _since(attribute.g, opset))
    return found


def _by_onnxruntime(model: onnx.ModelProto, feeds: Mapping[str, Value]) -> list[Value]:
    model = _older(model)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return _aligned(model, session.run(None, dict(feeds)))


def _by_reference(model: onnx.ModelProto, feeds: Mapping[str, Value]) -> list[Value]:
    outputs = ReferenceEvaluator(model).run(None, dict(feeds))
    return _aligned(model, [_array(value) for value in outputs])


def _array(value: Value) -> Value:
    if isinstance(value, list):
        return [np.asarray(each) for each in value]
    return None if value is None else np.asarray(value)


def _aligned(model: onnx.ModelProto, outputs: Sequence[Value]) -> list[Value]:
    found = dict(zip([o.name for o in model.graph.output], outputs))
    return [_strings(found.get(name)) for name in model.graph.node[0].output]


def _strings(value: Value) -> Value:
    if isinstance(value, np.ndarray) and value.dtype.kind in "US":
        return value.astype(object)
    return value


def interpret(
    model: onnx.ModelProto,
    feeds: Mapping[str, Value],
    order: Sequence[str] = RUNTIMES,
    disturb: Any = None,
    constants: bool = True,
    given: bool = True,
) -> dict[str, Value]:
    """Return name → value of everything in a model's graph, computed node by node.

    Args:
        model: topologically sorted.
        feeds: input → value.
        order: runtimes to ask for each node.
        disturb: called with every value and the largest magnitude of what small ones of it are
            differences of; returns the value to go on with.
        constants: whether initializers are disturbed too.
        given: whether `feeds` are.

    Raises:
        RefusedError: when a node is refused by all.
    """
    change = disturb or (lambda value, largest: value)
    values = {name: change(value, 0.0) if given else value for name, value in feeds.items()}
    for initializer in model.graph.initializer:
        array = tensor_array(initializer)
        values[initializer.name] = change(array, 0.0) if constants else array
    for node in model.graph.node:
        outputs = run_node(node, values, model.opset_import, order)
        largest = _largest(node, values)
        values.update((n, change(v, largest)) for n, v in zip(node.output, outputs) if n)
    return values


CANCELLING = frozenset({"Gelu", "BiasGelu", "FastGelu", "QuickGelu", "Scan", "Loop", "If"})
"""Operators with differences inside: x (1 + erf(x)), and whatever a body computes.

ONNX Runtime's logistic function, of which QuickGelu consists, is 0 from -18 downwards.
"""


def _largest(node: onnx.NodeProto, values: Mapping[str, Value]) -> float:
    if node.op_type not in CANCELLING:
        return 0.0
    found = 0.0
    for name in (*node.input, *captured(node)):
        value = values.get(name)
        if isinstance(value, np.ndarray) and is_float(value.dtype):
            size = np.abs(value.astype(np.float64))
            found = max(found, float(np.max(size, initial=0, where=np.isfinite(size))))
    return found


def tensor_array(tensor: onnx.TensorProto) -> np.ndarray:
    """Return an initializer's array; strings as objects."""
    if tensor.data_type == onnx.TensorProto.STRING:
        texts = [text.decode() for text in tensor.string_data]
        return np.array(texts, object).reshape(tuple(tensor.dims))
    return onnx.numpy_helper.to_array(tensor)
