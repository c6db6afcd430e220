"""Run by alembic, on a connection that is given to it."""

from alembic import context

from mirrorlake.control.store.tables import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA)
with context.begin_transaction():
    context.run_migrations()
