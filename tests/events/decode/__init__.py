"""Tests of reading event files."""
