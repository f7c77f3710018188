"""Retrieval: which entries a sentence may find, how its states are looked up, and how the result is mixed in."""
