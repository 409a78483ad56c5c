"""What each ONNX operator becomes: the table of translators, and ONNX's own functions.

An operator is served by, in this order: a translator of `operators`; an operation of the core
that it maps to one to one (``@operation(..., onnx=...)``); its definition by an ONNX function.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Union

import polydevice.ops  # noqa: F401 - defines the operations
from polydevice.node import Port
from polydevice.ops.op import Op, find_in_domain, find_onnx_operation
from polydevice.readers.onnx.protos.messages import FunctionProto, NodeProto, TypeProto
from polydevice.readers.onnx.signatures import Schema, find_schema, find_signature
from polydevice.stems import import_stems, stems_in

Translated = Union[Port, "Sequence[Port | None]"]
Translator = Callable[[Any], Translated]
"""``f(node: OnnxNode)`` returns the output port, or one port (None: not made) per output."""

OLDEST_OPSET = 7
"""First opset of which every operator is translated."""

OLDER = frozenset(
    {
        *("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less"),
        *("Abs", "Neg", "Floor", "Ceil", "Sqrt", "Reciprocal", "Exp", "Log", "Tanh", "Sigmoid"),
        *("Relu", "LeakyRelu", "PRelu", "Elu", "Selu", "HardSigmoid", "Clip", "Dropout"),
        *("Max", "Min", "Sum", "Mean", "Gemm", "AveragePool", "BatchNormalization"),
        *("InstanceNormalization", "Concat", "Reshape", "LSTM", "GRU", "RNN"),
    }
)
"""Operators that changed before opset 7 and are read in their older forms too."""

_TABLE: dict[tuple[str, str], dict[int, Translator]] = {}


def translates(*types: str, since: int = 1, domain: str = "") -> Callable[[Translator], Translator]:
    """Enter a translator for operators of `domain` from opset version `since` on.

    Raises:
        ValueError: when there is one already, naming its module.
    """

    def register(function: Translator) -> Translator:
        for name in types:
            versions = _TABLE.setdefault((domain, name), {})
            if since in versions:
                raise ValueError(f"{name}-{since} is translated in {versions[since].__module__}")
            versions[since] = function
        return function

    return register


SELDOM = {
    "attention": {"Attention"},
    "control_flow": {"If", "Loop", "Scan"},
    "forest": set(),
    "linear": {"ai.onnx.ml"},
    "microsoft_attention": {"com.microsoft", "RotaryEmbedding"},
    "microsoft_group_query": {"com.microsoft"},
    "microsoft_nchwc": {"com.microsoft.nchwc"},
    "microsoft_normalization": {"com.microsoft", "SimplifiedLayerNormalization"},
    "microsoft_quantize": {"com.microsoft"},
    "recurrent": {"GRU", "LSTM", "RNN"},
    "signal": {
        *("CumProd", "CumSum", "DFT", "MelWeightMatrix", "Multinomial", "RandomNormal"),
        *("RandomNormalLike", "RandomUniform", "RandomUniformLike", "STFT"),
    },
    "strings": {"ai.onnx.ml", "TfIdfVectorizer"},
    "support_vectors": {"ai.onnx.ml"},
    "trees": {"ai.onnx.ml"},
}
"""Modules of translators that few models need → operators, and domains, for which they are read."""

_OPERATORS = "polydevice.readers.onnx.operators"


@functools.lru_cache(maxsize=4096)
def _load(domain: str, op_type: str) -> None:
    """Import what may translate an operator."""
    needed = (name for name, served in SELDOM.items() if domain in served or op_type in served)
    import_stems(_OPERATORS, (stems_in(_OPERATORS) - SELDOM.keys()).union(needed))


def find_translator(domain: str, op_type: str, version: int) -> Translator | None:
    """Return the newest translator not above the version."""
    _load(domain, op_type)
    versions = _TABLE.get((domain, op_type), {})
    known = [since for since in versions if since <= version]
    return versions[max(known)] if known else None


_OWN_DOMAINS = ("opset", "onnx", "unknown")
"""Names by which core's own operations are known; they are no domains of ONNX files."""


def find_direct(domain: str, op_type: str) -> type[Op] | None:
    """Return the operation that an operator maps to one to one.

    An operator of another domain than ONNX's own is what a plugin or a user defined by that domain.
    """
    if domain == "":
        return find_onnx_operation(op_type)
    return None if domain in _OWN_DOMAINS else find_in_domain(domain, op_type)


def is_too_old(domain: str, op_type: str, version: int) -> bool:
    """Whether the operator of that opset differs from the one of opset 7 and is not in `OLDER`."""
    if domain or version >= OLDEST_OPSET or op_type in OLDER:
        return False
    then, now = (find_signature(domain, op_type, v) for v in (version, OLDEST_OPSET))
    return then is None or now is None or then.since != now.since


def has_function(domain: str, op_type: str, version: int) -> bool:
    """Whether ONNX defines the operator by other operators."""
    schema = find_schema(domain, op_type, version)
    if schema is None or schema.deprecated:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def function_body(
    schema: Schema, node: NodeProto, types: Sequence[TypeProto], version: int
) -> FunctionProto | None:
    """Return ONNX's function for a node with inputs of the given types, if there is one."""
    if schema.has_function:
        versions = [v for v in schema.function_opset_versions if v <= version]
        if versions:
            return _parsed(schema.get_function_with_opset_version(max(versions)))
    if schema.has_context_dependent_function:
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= version]
        if versions:
            return _parsed(
                schema.get_context_dependent_function_with_opset_version(
                    max(versions), node.SerializeToString(), [t.SerializeToString() for t in types]
                )
            )
    return None


def _parsed(data: bytes) -> FunctionProto | None:
    if not data:
        return None
    function = FunctionProto()
    function.ParseFromString(data)
    return function
