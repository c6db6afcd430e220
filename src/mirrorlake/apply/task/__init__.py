"""The work of one task, its input and its result. Runs in any process."""
