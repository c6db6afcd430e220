"""Compares mirrored tables with the source, at one position of its log."""
