"""Rows into the bytes of data files."""
