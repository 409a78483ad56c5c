"""Products: matrices, and convolutions as matrices."""
