"""Attention in one launch."""
