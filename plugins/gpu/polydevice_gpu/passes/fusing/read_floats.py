"""read_floats: a convolution of an image makes the bytes that it reads of floats itself.

The first layer of a quantised network quantises its input, which costs a launch. Tiles overlap, so
that some bytes are made twice: of many images that takes longer than the launch.
"""

from __future__ import annotations

import dataclasses
import functools
import operator

from polydevice.dtype import ElementType
from polydevice.ops.python_operation import PythonOperation
from polydevice.symbolic_trace import chosen
from polydevice_gpu.graph import GpuGraph, GpuNode
from polydevice_gpu.kernels.gemm.image_bytes_mma import ConvolutionImageBytesMma
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.ops import Fused, IntegerConvolution, QuantisedConvolution

MOST_ELEMENTS = 1 << 19
"""Of the image. The first layer of ResNet-50 for 32 pictures of 224x224 takes 86 us on an H200 if
it reads floats, and 60 with the launch that makes bytes; for one, any launch takes 7."""

_KERNEL = ConvolutionImageBytesMma()


def read_floats(graph: GpuGraph, target: Target) -> None:
    """Join what quantises an image to the convolution that reads it, if nobody else does."""
    users = graph.users()
    for node in list(graph.nodes):
        if type(node.op) is not IntegerConvolution or users[node.inputs[0]] != [node]:
            continue
        maker = node.inputs[0].producer
        if _KERNEL.refuses(node, target) or _KERNEL.yields(node, target):
            continue
        if maker is None or node.inputs[0].is_output or not _quantises(maker):
            continue
        elements = node.inputs[0].elements
        if not chosen(functools.partial(operator.le, elements, MOST_ELEMENTS)):
            continue
        fragment = maker.operation(Fused).fragment
        signed = fragment.element_type is ElementType.i8
        settings = {each.name: getattr(node.op, each.name) for each in dataclasses.fields(node.op)}
        settings["zero"] += 128 if signed else 0  # the units are told of numbers without a sign
        node.op = QuantisedConvolution(**settings, fragment=fragment)
        node.inputs = [maker.inputs[0], node.inputs[1], *maker.inputs[1:], *node.inputs[2:]]
        graph.nodes.remove(maker)
        node.origins += maker.origins


def _quantises(node: GpuNode) -> bool:
    """Whether a node makes every element of one of its first input's and of single numbers."""
    if not isinstance(node.op, Fused) or node.on_host or node.epilogue is not None:
        return False
    x, *numbers = node.inputs
    return (
        x.storage.is_float
        and x.constant is None
        and x.border is None
        and x.shape == node.output.shape
        and all(value.constant is not None and value.elements == 1 for value in numbers)
        and not any(isinstance(step.op, PythonOperation) for step in node.op.fragment.steps)
    )
