"""Algorithms on rows in machine code, which a plan may run in one call with primitives."""
