"""Recurrent layers, as primitives of oneDNN or machine code that computes their steps."""

from polydevice_cpu.lowering.recurrent import primitives as primitives
