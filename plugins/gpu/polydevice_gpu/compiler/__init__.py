"""From a network to the plan that requests replay: the stages, their order, and what they need."""
