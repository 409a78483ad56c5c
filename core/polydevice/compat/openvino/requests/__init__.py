"""Inferences: requests, their tensors and their results."""
