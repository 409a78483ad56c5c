"""Makers of primitives, one function per oneDNN operation.

Each returns None where oneDNN has no implementation for the descriptors and attributes given.
"""

from __future__ import annotations

from polydevice_cpu.onednn.primitives.convolution import convolution, deconvolution
from polydevice_cpu.onednn.primitives.matmul import matmul
from polydevice_cpu.onednn.primitives.movement import concat, reorder, resampling
from polydevice_cpu.onednn.primitives.normalization import (
    layer_normalization,
    lrn,
    softmax,
)
from polydevice_cpu.onednn.primitives.pointwise import binary, eltwise, prelu
from polydevice_cpu.onednn.primitives.pooling import pooling
from polydevice_cpu.onednn.primitives.recurrent import RecurrentDescriptors, gru, lstm, rnn
from polydevice_cpu.onednn.primitives.reduction import reduction

__all__ = [
    "RecurrentDescriptors",
    "binary",
    "concat",
    "convolution",
    "deconvolution",
    "eltwise",
    "gru",
    "layer_normalization",
    "lrn",
    "lstm",
    "matmul",
    "pooling",
    "prelu",
    "reduction",
    "reorder",
    "resampling",
    "rnn",
    "softmax",
]
