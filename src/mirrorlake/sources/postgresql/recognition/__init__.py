"""Whether a table, its columns and its partitions are still those that were loaded."""
