"""Binding of the oneDNN v3 C library with ctypes; loads nothing when imported."""
