"""Delta tables without a JVM: their log, their files, their rows, their feed."""
