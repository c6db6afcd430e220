"""Staged files of a landing zone while they are written."""
