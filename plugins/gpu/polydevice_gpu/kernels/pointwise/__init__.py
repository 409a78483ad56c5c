"""Pointwise operations as expressions, and the launches that are made of them."""
