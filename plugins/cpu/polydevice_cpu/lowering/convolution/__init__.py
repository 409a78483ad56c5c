"""Convolutions, as primitives of oneDNN or by machine code."""

from polydevice_cpu.lowering.convolution import primitives as primitives
