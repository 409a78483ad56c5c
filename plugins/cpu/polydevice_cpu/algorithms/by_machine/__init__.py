"""Algorithms in machine code, where NumPy is slow and oneDNN has none, or none for all sizes."""
