"""Histories: for each key the newest row (type 1), or every row it had (type 2)."""
