"""Builds and translations on a Ray cluster: pieces of work on actors that hold a model (extra `ray`).

Ray places the actors, restarts those that die, and gives them their work again. All machines see the same files.
"""
