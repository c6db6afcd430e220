"""Tasks, commits and tables in this process, without Spark and without a JVM.

For tests, and for whoever wants to see what a batch does. Tables are real: every reader of Delta
reads them.
"""
