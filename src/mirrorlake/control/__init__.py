"""Streams, objects, profiles and operations: what is wanted of them, and which moves are legal."""
