"""Passes for what computes on integers: tables of bytes, packed weights, rounding, products."""
