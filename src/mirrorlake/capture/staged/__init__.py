"""What is staged of tables that are read, and noted so that it counts after a crash."""
