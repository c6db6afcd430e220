"""The database of resources: SQLite by default, or any other that SQLAlchemy supports."""
