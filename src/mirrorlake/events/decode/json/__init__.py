"""Decodes events from lines of JSON."""
