"""A database in memory, with a log, as a source: for tests, examples and simulations."""
