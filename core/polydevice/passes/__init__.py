"""Passes that any device may use: each changes a network in place, keeping what it computes."""
