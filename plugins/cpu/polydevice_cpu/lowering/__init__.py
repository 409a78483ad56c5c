"""Lowerings: how operations become oneDNN primitives, machine code or views, one module per family.

What no lowering takes is computed by the NumPy function of `polydevice_cpu.ops`.
"""
