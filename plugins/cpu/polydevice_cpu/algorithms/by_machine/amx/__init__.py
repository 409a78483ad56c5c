"""Products of bytes in AMX tiles, for all sizes."""
