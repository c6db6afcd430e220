"""The contract of an engine: scenarios as data, and what only several engines can show."""
