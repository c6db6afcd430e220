"""The migrations of the tables, run by alembic."""
