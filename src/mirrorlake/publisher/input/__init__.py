"""Reads rows from files, DataFrames, Arrow data and Python objects."""
