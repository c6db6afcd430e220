"""The steps that make the tables, run by alembic."""
