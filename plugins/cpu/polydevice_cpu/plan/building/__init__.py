"""How a network for concrete shapes becomes a plan."""
