"""Tasks, commits and tables in this process, without Spark and without a JVM.

For tests, and to try out batches. The tables are real Delta tables.
"""
