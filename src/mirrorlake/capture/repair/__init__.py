"""Lets a stream continue after changes were lost: which tables are compared with the source."""
