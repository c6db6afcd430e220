"""Reads the progress of tables from their logs."""
