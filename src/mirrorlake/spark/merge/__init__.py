"""Applies batches with Delta's MERGE."""
