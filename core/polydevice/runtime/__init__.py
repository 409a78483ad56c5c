"""What devices run networks with: the contract of a request, and what every runtime needs."""
