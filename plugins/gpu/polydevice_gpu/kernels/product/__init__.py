"""Matrix products, one by one and batched."""
