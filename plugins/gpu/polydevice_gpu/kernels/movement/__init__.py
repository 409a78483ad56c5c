"""Elements that only move: joined, bordered, gathered, scattered."""
