"""Convolutions, transposed ones, and windows put back where they came from."""
