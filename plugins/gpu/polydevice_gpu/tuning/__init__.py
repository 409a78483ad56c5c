"""Tuning: which kernel and mode is fastest for a layer on this device, found by timing them."""
