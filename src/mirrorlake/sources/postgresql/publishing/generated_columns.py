"""Generated columns that a publication carries: from PostgreSQL 18 on it may, if it is told to.

They are not mirrored, and the catalog is looked at without them. Where the stream has them all the
same, values would come to other columns than their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from mirrorlake.model.table import TableId

# A list of columns decides by itself. Those that are computed at each reading are never published.
_PUBLISHED = """
array(select array[m.publication::text, (m.columns is not null)::text, a.attname::text]
      from member m join pg_publication p on p.pubname = m.publication
      join pg_attribute a on a.attrelid = c.oid and a.attgenerated = 's' and not a.attisdropped
      where m.oid = c.oid
        and case when m.columns is null then p.pubgencols = 's' else a.attnum = any(m.columns) end
      order by a.attnum, m.publication)
"""
SINCE = 180_000


def published(version: int) -> str:
    """A query of those of table `c` that its publications carry, which `member` has: for each the
    publication, whether that lists it, and its name. version: of the server."""
    return _PUBLISHED if version >= SINCE else "array[]::text[]"


def refusal(table: TableId, found: Sequence[Sequence[str]]) -> tuple[str, str] | None:
    """Why a table cannot be captured, and what to do. found: as of `published`."""
    if not found:
        return None
    name, is_listed, column = found[0]
    remedy = (
        f"Leave {column} out of the columns that publication {name} lists for the table"
        if is_listed == "true"
        else f"Run `{_withdrawal(name)}`"
    )
    return (
        f"publication {name} publishes generated column {column}, which cannot be mirrored",
        f"{remedy}. If the table was mirrored before, then run `mirrorlake repair {table}`.",
    )


def _withdrawal(name: str) -> str:
    statement = "alter publication {} set (publish_generated_columns = none)"
    return sql.SQL(statement).format(sql.Identifier(name)).as_string()
