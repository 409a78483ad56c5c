"""Seeded faults in the packages, to see whether the tests notice them (docs/testing.md)."""
