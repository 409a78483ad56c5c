"""Tiny kernels that find out, in a child process, what a device really can do."""
