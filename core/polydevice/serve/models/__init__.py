"""Models that are served: their queues, threads, limits and statistics."""
