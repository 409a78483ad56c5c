"""Rows gathered into one or two numbers: softmax, normalisations, reductions, segments."""
