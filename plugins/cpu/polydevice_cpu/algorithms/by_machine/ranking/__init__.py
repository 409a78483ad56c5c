"""Ranking: which elements of rows come first, and in which order."""
