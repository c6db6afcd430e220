"""Tables from event files, whoever wrote them, in whatever order they arrive (ST-236 to ST-263)."""
