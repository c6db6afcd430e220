"""Decodes event files into columns."""
