"""Durable files below one root: what is asked of a storage, and the storages that give it."""
