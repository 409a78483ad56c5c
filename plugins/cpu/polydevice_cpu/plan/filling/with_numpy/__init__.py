"""What NumPy computes for all sizes, where oneDNN would generate code for each."""
