"""What runs at inference: plans with weights and memory, and the requests that replay them."""
