"""Roundings to few levels, and functions of what was rounded: what may be left out."""
