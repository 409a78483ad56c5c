"""Queues, and what is enqueued on them: launches, transfers, events and their times."""
