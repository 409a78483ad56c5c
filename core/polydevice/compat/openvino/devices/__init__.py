"""Devices, and models on them."""
