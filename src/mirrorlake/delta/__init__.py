"""Delta tables without a JVM: log, data files, rows, change feed."""
