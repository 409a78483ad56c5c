"""Fourier transforms of few points, summed in f64 by machine code."""
