"""Passes that let a kernel do what stands before or behind it."""
