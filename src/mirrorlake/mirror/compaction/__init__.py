"""Selects the files of a table to compact."""
