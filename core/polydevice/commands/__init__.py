"""The commands of ``polydevice``: each has its options and what it does."""
