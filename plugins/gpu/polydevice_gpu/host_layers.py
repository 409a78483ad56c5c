"""Which layers belong on the host, and why: what no GPU is good at, what has no size.

Everything else is refused unless a kernel takes it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from polydevice.dtype import ElementType
from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.ops.control_flow import If, Loop, TensorIterator
from polydevice.ops.convert import BitCast
from polydevice.ops.coupling import PairwiseCoupling
from polydevice.ops.ctc import CTCGreedyDecoder, CTCGreedyDecoderSeqLen, CTCLoss
from polydevice.ops.detection_output import DetectionOutput
from polydevice.ops.detectron import (
    ExperimentalDetectronDetectionOutput,
    ExperimentalDetectronGenerateProposalsSingleImage,
    ExperimentalDetectronTopKROIs,
)
from polydevice.ops.embedding import SparseFillEmptyRows
from polydevice.ops.io import Constant
from polydevice.ops.matmul import GroupedMatMul
from polydevice.ops.nms import MatrixNms, MulticlassNms, NMSRotated, NonMaxSuppressionOp
from polydevice.ops.op import Op
from polydevice.ops.prior_box import PriorBox, PriorBoxClustered
from polydevice.ops.proposal import GenerateProposals, Proposal
from polydevice.ops.python_operation import PythonOperation
from polydevice.ops.random import Multinomial, RandomUniform
from polydevice.ops.search import NonZero, Unique
from polydevice.rewrites.facts import shape_of
from polydevice.symbolic_size import is_symbolic
from polydevice.symbolic_trace import current_trace
from polydevice.tensor import TensorDesc
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.types import storage_type

LEAST_ELEMENTS = 1 << 16
"""Of what layers read; below that the host computes them while the device would wait for their
launches, where sizes that an inference tells are in the way of these."""

_KINDS: dict[str, tuple[type[Op], ...]] = {
    "sorting and suppressing boxes is short, sequential and full of branches": (
        Proposal, NonMaxSuppressionOp, DetectionOutput, MatrixNms, MulticlassNms, NMSRotated,
        GenerateProposals, ExperimentalDetectronDetectionOutput,
        ExperimentalDetectronGenerateProposalsSingleImage, ExperimentalDetectronTopKROIs,
    ),
    "it depends on shapes alone, which are not known at load": (PriorBox, PriorBoxClustered),
    "the sequence of random numbers is the host's": (RandomUniform, Multinomial),
    "it is one pass over a row, in which every element depends on the one before": (
        CTCGreedyDecoder, CTCGreedyDecoderSeqLen, CTCLoss,
    ),
    "it iterates over a few numbers of a row until they change no more": (PairwiseCoupling,),
    "how much comes out depends on values": (Unique, NonZero, SparseFillEmptyRows),
    "the course of its bodies depends on values that the host has": (If, Loop, TensorIterator),
}  # fmt: skip
"""Reason → operations that the host always computes where they are not known at load."""

_OF_THE_HOST = tuple(kind for kinds in _KINDS.values() for kind in kinds)


def why_on_host(node: Node) -> str:
    """Say why a layer belongs on the host; empty where kernels compute it.

    It is of a kind that does, or has values that no kernel holds: of unknown size, texts, complex
    numbers and 8-bit floats.
    """
    reason = why_always_on_host(node)
    if reason:
        return reason
    for port in (*node.inputs, *node.outputs):
        if not port.desc.is_static:
            return f"the size of {port.name} is not known before inference"
    return ""


def why_always_on_host(node: Node) -> str:
    """Say why a layer belongs on the host whatever sizes turn out to be; see `why_on_host`."""
    reason = _kind(node.op, [port.element_type for port in node.inputs])
    if reason:
        return reason
    for port in (*node.inputs, *node.outputs):
        if not _is_held(port.desc.element_type):
            return f"{port.name} is {port.element_type}, which no kernel holds"
    return ""


def is_late(node: GpuNode) -> bool:
    """Whether a layer is left to the host for nothing but sizes that an inference tells."""
    values = (*node.inputs, *node.outputs)
    return (
        not _kind(node.op, [value.element_type for value in node.inputs])
        and all(_is_held(value.element_type) for value in values)
        and any(value.on_host for value in values)
    )


def why_left_on_host(node: GpuNode) -> str:
    """Say the same of a layer that was left to the host."""
    reason = _kind(node.op, [value.element_type for value in node.inputs])
    if reason:
        return reason
    for value in (*node.inputs, *node.outputs):
        if not _is_held(value.element_type):
            return f"{value.name} is {value.element_type}, which no kernel holds"
        if value.on_host:
            return f"the size of {value.name} is not known before inference"
    return "no kernel takes it"


def kind_on_host(op: type[Op]) -> str:
    """Say why the host always computes an operation; empty for all others."""
    if not issubclass(op, _OF_THE_HOST):
        return ""
    return next((reason for reason, kinds in _KINDS.items() if issubclass(op, kinds)), "")


def _kind(op: Op, inputs: Sequence[ElementType]) -> str:
    if reason := kind_on_host(type(op)):
        return reason
    if isinstance(op, BitCast):
        # Kernels hold these as other types, and f64 on some devices.
        for kind in (inputs[0], op.destination_type):
            if kind.bits < 8 or (kind.is_float and kind is not ElementType.f32):
                return f"kernels may hold {kind} in other bits"
    if isinstance(op, PythonOperation) and not (op.definition.element or op.definition.group):
        return "it has no OpenCL body"
    if isinstance(op, GroupedMatMul) and len(inputs) > 2:
        return "which rows belong together depends on values"
    return ""


@lru_cache(maxsize=256)
def _is_held(element_type: ElementType) -> bool:
    """Whether kernels can hold values of a type."""
    return storage_type(element_type, fp64=True) is not None


def bodies_of(node: Node) -> list[Network]:
    """Return the networks in a loop or If."""
    if not node.op.has_bodies:
        return []
    return [value for value in vars(node.op).values() if isinstance(value, Network)]


def is_left_to_host(node: Node, most: float) -> bool:
    """Whether the host runs a loop whose number of iterations follows from sizes.

    So that a plan with symbolic sizes serves them all: written out, each number has its own.

    Args:
        node: a loop, or anything else.
        most: elements that it may read.
    """
    op = node.op
    if current_trace() is None or not isinstance(op, (TensorIterator, Loop)):
        return False
    trips = node.inputs[0].desc.static_ints if isinstance(op, Loop) else None
    count = trips[0] if trips else op.iterations([port.desc for port in node.inputs])
    if not is_symbolic(count):
        return False
    ports = [*node.inputs, *_constants_in(node)]
    if not all(port.desc.is_static for port in ports):
        return False
    return most == math.inf or sum(math.prod(shape_of(port)) for port in ports) < most


def _constants_in(node: Node) -> list[Port]:
    """Return the constants in the bodies of a loop or If."""
    found = []
    for inner in (inner for body in bodies_of(node) for inner in body.nodes()):
        found += inner.outputs if isinstance(inner.op, Constant) else _constants_in(inner)
    return found


def lives_on_host(desc: TensorDesc) -> bool:
    """Whether a value is one that device memory cannot hold."""
    return not desc.is_static or storage_type(desc.element_type, fp64=True) is None
