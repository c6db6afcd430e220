"""Types of PostgreSQL and their values."""
