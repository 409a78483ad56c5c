"""Determinants and inverses."""
