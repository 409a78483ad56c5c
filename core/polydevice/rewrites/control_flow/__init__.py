"""Loops and Ifs whose course is known at load become plain layers, or simpler loops."""
