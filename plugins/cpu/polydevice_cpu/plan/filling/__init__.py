"""Filling plans in: those with formulas, and what they are for other sizes."""
