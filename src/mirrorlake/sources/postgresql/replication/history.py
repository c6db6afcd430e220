"""The timelines of a server: a standby that is promoted, and a server that is restored, begin a new
timeline at a position of the former one. What the former one has after that position is not part of
the new one.
"""

from __future__ import annotations

import re

from mirrorlake.errors import PrerequisiteMissing
from mirrorlake.model.position import LogPoint, Lsn
from mirrorlake.sources.postgresql.connect import Connection, simple_query

MOST_REACHED = 256 << 20
"""Bytes of WAL that are written at most to reach a position."""

_STEP = 1 << 20
_LINE = re.compile(r"\s*(\d+)\s+([0-9A-Fa-f]+/[0-9A-Fa-f]+)")


def left_at(replication: Connection, former: str, now: str) -> Lsn | None:
    """The position at which a former timeline was left; None if it is no ancestor of this one."""
    (row,) = simple_query(replication, f"TIMELINE_HISTORY {int(now)}")
    return ends(row["content"] or "").get(int(former))


def ends(content: str) -> dict[int, Lsn]:
    """The position at which each former timeline was left, by the content of a history file."""
    found = (_LINE.match(line) for line in content.splitlines())
    return {int(match[1]): Lsn.parse(match[2]) for match in found if match}


def reach(connection: Connection, point: LogPoint) -> None:
    """Write dummy messages to the WAL until it covers a point. Raises
    PrerequisiteMissing when it is too far behind."""
    assert isinstance(point, Lsn)
    if (behind := point.value - _end(connection).value) > MOST_REACHED:
        raise PrerequisiteMissing(
            f"the log of this server is {behind / _STEP:,.0f} MiB behind {point}, up to which "
            "changes were landed: its positions would come a second time",
            where="PostgreSQL",
            hint="Run `mirrorlake reset --all` to load all tables again.",
        )
    while not _end(connection).covers(point):
        connection.execute(
            "select pg_logical_emit_message(false, 'mirrorlake', repeat('x', %s))",
            [max(min(point.value - _end(connection).value, _STEP), 1)],
        )


def _end(connection: Connection) -> Lsn:
    ((end,),) = connection.execute("select pg_current_wal_insert_lsn()::text").fetchall()
    return Lsn.parse(end)
