"""Decides whether the direct strategy may be used with a Spark: versions, jars, and a self-test."""
