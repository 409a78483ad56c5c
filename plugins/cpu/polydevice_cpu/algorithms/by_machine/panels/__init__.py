"""Machine code for products with matrices of 4 or 8 bits, a panel of columns after the other."""
