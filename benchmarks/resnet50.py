"""ResNet-50 v1.5 as an ONNX model with random weights: for timing, not for answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]
SIDE, CLASSES = 224, 1000


class _Builder:
    """Nodes and weights of a graph in the making; values are known by name."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def constant(self, array: Array) -> str:
        name = f"weights{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array.astype(np.float32), name))
        return name

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{kind}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def convolution(self, x: str, channels: int, out: int, window: int, stride: int) -> str:
        """Convolution with bias; weights that keep the scale of values."""
        scale = np.sqrt(2 / (channels * window * window))
        weights = self.random.standard_normal((out, channels, window, window)) * scale
        return self.node(
            "Conv",
            x,
            self.constant(weights),
            self.constant(self.random.standard_normal(out) / 10),
            kernel_shape=[window] * 2,
            strides=[stride] * 2,
            pads=[window // 2] * 4,
        )

    def block(self, x: str, channels: int, width: int, stride: int) -> str:
        """Bottleneck: 1x1, 3x3 (strided) and 1x1 convolutions beside a shortcut."""
        out = 4 * width
        short = x if channels == out else self.convolution(x, channels, out, 1, stride)
        y = self.node("Relu", self.convolution(x, channels, width, 1, 1))
        y = self.node("Relu", self.convolution(y, width, width, 3, stride))
        y = self.node("Mul", self.convolution(y, width, out, 1, 1), self.constant(np.array(0.5)))
        return self.node("Relu", self.node("Add", y, short))


def resnet50(path: Path, batch: int, seed: int = 2021) -> None:
    """Write the model: input ``image`` [batch, 3, 224, 224], output ``logits`` [batch, 1000], f32.

    Source: He et al., Deep Residual Learning for Image Recognition, 2015, with strides in the 3x3
    convolutions (v1.5), batch normalisation folded into weights and biases.
    """
    make = _Builder(seed)
    x = make.node("Relu", make.convolution("image", 3, 64, 7, 2))
    x = make.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for number in range(blocks):
            x = make.block(x, channels, width, 1 if number else stride)
            channels = 4 * width
    x = make.node("Flatten", make.node("GlobalAveragePool", x))
    weights = make.constant(make.random.standard_normal((channels, CLASSES)) / np.sqrt(channels))
    logits = make.node("Gemm", x, weights, make.constant(np.zeros(CLASSES)))
    make.nodes.append(helper.make_node("Identity", [logits], ["logits"]))
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [batch, 3, SIDE, SIDE])
    result = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [batch, CLASSES])
    graph = helper.make_graph(make.nodes, "resnet50", [image], [result], make.weights)
    opset = helper.make_opsetid("", 17)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=8), path)


def pictures(batch: int, seed: int = 7) -> Array:
    """Return [batch, 3, 224, 224] of smooth blobs with a little noise, as photographs are."""
    random = np.random.default_rng(seed)
    coarse = random.standard_normal((batch, 3, 15, 15))
    at = np.linspace(0, 14, SIDE)
    left = np.minimum(at.astype(int), 13)
    weight = at - left
    for axis in (2, 3):
        shape = [-1 if n == axis else 1 for n in range(4)]
        w = weight.reshape(shape)
        coarse = coarse.take(left, axis) * (1 - w) + coarse.take(left + 1, axis) * w
    noise = 0.1 * random.standard_normal(coarse.shape)
    return np.ascontiguousarray((coarse + noise).astype(np.float32))
