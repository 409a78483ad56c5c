"""How a plan gets the memory of a request."""
