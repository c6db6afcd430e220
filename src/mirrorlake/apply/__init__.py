"""Applies batches: read, fold, look up, write, commit.

Nothing here needs a JVM: the tasks run in this process, or in the Python workers of Spark
(`spark/merge`).
"""
