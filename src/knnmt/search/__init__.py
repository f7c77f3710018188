"""The k nearest rows of ranges."""
