"""Random valid networks and damaged files, and what devices make of them (docs/fuzzing.md)."""
