"""Nodes, their ends, and what makes them."""
