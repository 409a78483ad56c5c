"""Convolutions and matrix products as one product of rows and columns, by many kinds of units."""
