"""The error of an unreadable event file, which becomes a dead letter with its reason (ST-253)."""

from __future__ import annotations


class UnreadableEvents(Exception):
    """The file, or part of it, cannot be read: none of its events is applied."""
