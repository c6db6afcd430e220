"""A consumer of a subscription that runs in a process of its own, to be killed.

Its effect is a row in a database: for each commit, and in the same transaction its position.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from mirrorlake import subscribe
from mirrorlake.model.crash_points import no_crash
from tests.crash.entry import CRASH_AT, kill_at


def open_database(root: Path) -> sqlite3.Connection:
    database = sqlite3.connect(root / "consumer.db")
    database.execute(
        "create table if not exists seen (version int, is_snapshot int, position text)"
    )
    return database


def with_its_own_position(root: str) -> None:
    """Exactly once."""
    with closing(open_database(Path(root))) as database:
        last = database.execute("select position from seen order by rowid desc limit 1").fetchone()
        _consume(root, database, {"after": last[0] if last else None})


def with_ours(root: str) -> None:
    """At least once."""
    with closing(open_database(Path(root))) as database:
        _consume(root, database, {})


def _consume(root: str, database: sqlite3.Connection, arguments: dict[str, str | None]) -> None:
    target = os.environ.get(CRASH_AT)
    subscription = subscribe(
        "audit",
        Path(root, "Tables/shop/orders"),
        reached=kill_at(target) if target else no_crash,
        **arguments,  # type: ignore[arg-type]
    )
    with subscription:
        for delivery in subscription:
            with database:
                database.execute(
                    "insert into seen values (?, ?, ?)",
                    (delivery.version, delivery.is_snapshot, str(delivery.position)),
                )
