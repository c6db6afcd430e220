"""Decides how a landing zone is applied to tables: pure functions, no I/O."""
