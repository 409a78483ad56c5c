"""Machine code for attention as a whole: scores, their shares, and what is mixed by them."""
