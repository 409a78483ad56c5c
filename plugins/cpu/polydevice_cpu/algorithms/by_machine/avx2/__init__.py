"""Emitted code for processors with AVX2 and FMA, which have no AVX-512."""
