"""Loops and branches: bodies as plans within a plan."""
