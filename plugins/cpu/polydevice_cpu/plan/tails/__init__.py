"""What runs the nodes whose sizes only the data tells."""
