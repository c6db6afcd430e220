"""Everything that uses Spark; no other package imports it."""
