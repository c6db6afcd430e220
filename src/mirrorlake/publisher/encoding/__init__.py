"""Encodes rows as data files."""
