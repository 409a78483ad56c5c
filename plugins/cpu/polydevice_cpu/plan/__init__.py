"""Plans: a network for concrete input shapes as a flat list of prepared steps."""
