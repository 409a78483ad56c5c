"""Reductions of numbers along any axes."""
