"""Streams, objects, profiles and operations: their desired states and the legal moves between
states."""
