"""Writes data files, change files, deletion vectors and commits of a table."""
