"""Algorithms that several operations of `ops` use, in NumPy."""
