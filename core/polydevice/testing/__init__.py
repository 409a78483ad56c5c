"""Suites and cases that devices, first-party and others, are tested with."""
