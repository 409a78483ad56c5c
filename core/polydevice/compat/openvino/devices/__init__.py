"""Devices, and models compiled for them."""
