"""NumPy implementations, one module per family, with the stems of ``polydevice.ops``."""
