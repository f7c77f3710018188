"""The systems."""
