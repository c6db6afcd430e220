"""Where resources are kept: SQLite by default, any database that SQLAlchemy knows."""
