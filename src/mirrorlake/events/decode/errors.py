"""What is wrong with a file: the reason with which it becomes a dead letter (ST-253)."""

from __future__ import annotations


class UnreadableEvents(Exception):
    """Nothing of the file can be read, or not all of it: none of its events is applied."""
