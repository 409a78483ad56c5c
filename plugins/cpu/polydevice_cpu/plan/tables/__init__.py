"""Plans that are mostly one table, of numbers that machine code is told."""
