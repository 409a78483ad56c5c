"""Custom layers: kernels that the user brings, described by the files that CONFIG_FILE names."""
