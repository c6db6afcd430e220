"""Batches of events: what they change in their tables, and the tasks that compute it."""
