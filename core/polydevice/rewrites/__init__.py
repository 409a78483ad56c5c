"""Rewrites: networks become equal networks that suit a device better."""
