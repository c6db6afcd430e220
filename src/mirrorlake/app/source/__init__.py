"""A mirror and its source: whether it can begin or go on, and that it was detached."""
