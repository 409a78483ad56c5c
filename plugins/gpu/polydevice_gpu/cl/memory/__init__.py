"""Memory objects: buffers, images, and those that the user shares with us."""
