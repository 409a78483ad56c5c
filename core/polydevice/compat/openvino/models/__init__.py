"""Models: networks, and what is done to whole ones."""
