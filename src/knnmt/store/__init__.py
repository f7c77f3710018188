"""Datastores: remembered tokens on disk, their clusters and their index."""
