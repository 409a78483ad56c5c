"""Products with matrices of 4 and 8 bits for processors that multiply bytes, or tiles."""
