"""Retrieval: what a sentence may see of a store, how a state is looked up in it, and how that is mixed in."""
