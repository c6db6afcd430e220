"""How a mirror and its tables stand, for people and programs."""
