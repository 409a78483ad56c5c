"""Texts: patterns that they match, and what is counted in them."""
