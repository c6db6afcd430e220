"""Run by alembic, on the connection passed to it."""

from alembic import context

from mirrorlake.control.store.tables import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA)
with context.begin_transaction():
    context.run_migrations()
