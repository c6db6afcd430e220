"""Event files into columns."""
