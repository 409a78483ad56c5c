"""Many iterations of a loop as one call."""
