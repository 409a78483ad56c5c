"""What devices run networks with: the contract of a request, plans by shape, arenas and times."""
