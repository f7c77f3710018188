"""The systems: one file each. `table` has them by name."""
