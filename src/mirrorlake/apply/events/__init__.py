"""Tables from anyone's event files, in whatever order they arrive (ST-236 to ST-263)."""
