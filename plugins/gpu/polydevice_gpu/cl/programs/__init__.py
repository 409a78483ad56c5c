"""Programs: built from source or taken from the cache of binaries."""
