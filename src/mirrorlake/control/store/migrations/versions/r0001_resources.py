"""Resources, requests and the activity log."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "resources",
        sa.Column("name", sa.String(1_000), primary_key=True),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("parent", sa.String(1_000), nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("wanted", sa.String(32), nullable=False, server_default=""),
    )
    op.create_index("resources_by_parent", "resources", ["kind", "parent", "name"])
    op.create_table(
        "requests",
        sa.Column("parent", sa.String(1_000), primary_key=True),
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("operation", sa.String(1_000), nullable=False),
        sa.Column("time", sa.Float, nullable=False),
    )
    op.create_table(
        "activity",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("resource", sa.String(1_000), nullable=False),
        sa.Column("time", sa.String(40), nullable=False),
        sa.Column("event_code", sa.String(64), nullable=False),
        sa.Column("event_message", sa.Text, nullable=False),
        sa.Column("new_state", sa.String(32), nullable=False, server_default=""),
    )
    op.create_index("activity_by_resource", "activity", ["resource", "number"])


def downgrade() -> None:
    for table in ("activity", "requests", "resources"):
        op.drop_table(table)
