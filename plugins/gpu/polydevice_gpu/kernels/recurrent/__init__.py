"""Recurrent sequences."""
