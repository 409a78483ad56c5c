"""Steps of a plan that are computed together."""
