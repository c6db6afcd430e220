"""Streams at work: what is wanted of them meets sources, processes and tables."""
