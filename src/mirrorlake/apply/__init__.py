"""Applies batches without a JVM: read, fold, look up, write, commit."""
