"""Normalisations: by the mean and variance in steps, and batch normalisations by statistics."""
