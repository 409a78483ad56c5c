"""Convolutions as others that oneDNN computes sooner."""
