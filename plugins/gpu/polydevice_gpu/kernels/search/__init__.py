"""The largest and smallest elements."""
