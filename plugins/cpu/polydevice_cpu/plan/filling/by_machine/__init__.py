"""Layers of new sizes that machine code computes, the same for all sizes."""
