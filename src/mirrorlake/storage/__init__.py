"""Durable files below one root: the contract of a store, and its implementations."""
