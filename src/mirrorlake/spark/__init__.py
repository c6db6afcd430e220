"""Spark: the only room that knows it."""
