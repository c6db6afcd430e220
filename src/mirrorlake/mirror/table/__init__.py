"""The state of a table: recorded progress, new files, and reasons to stop."""
