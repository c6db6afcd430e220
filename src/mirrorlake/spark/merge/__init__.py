"""Batches applied by Delta's own MERGE."""
