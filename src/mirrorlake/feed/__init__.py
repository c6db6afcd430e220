"""The change feed of tables: ranges, reading, following."""
