"""What to do with a landing zone: pure decisions, no I/O."""
