"""Mirrors as processes: each capture in one of its own, all that apply together in another."""
