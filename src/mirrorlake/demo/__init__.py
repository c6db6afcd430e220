"""The demo: a real database under load, mirrored and verified."""
