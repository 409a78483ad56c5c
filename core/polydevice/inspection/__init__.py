"""What people look at: which device runs which layer, where code is defined, what was measured."""
