"""The work of one task: what it is given, what it does, what it returns. Runs in any process."""
