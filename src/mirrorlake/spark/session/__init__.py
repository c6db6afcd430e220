"""The Spark session: its jars, its settings, its workers."""
