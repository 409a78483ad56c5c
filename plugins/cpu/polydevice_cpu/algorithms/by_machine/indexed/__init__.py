"""What is taken from, or put to, places that indices tell."""
