"""Trials between inferences: which of two ways of running the same is faster."""
