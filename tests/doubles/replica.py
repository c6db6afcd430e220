"""Another server takes over from the one that a source in memory was read from."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from random import Random

from mirrorlake.model.table import TableId
from mirrorlake.sources.memory.database import Key, Logged, MemoryDatabase, WriteKind


def fail_over(database: MemoryDatabase, random: Random) -> None:
    """Let a replica take over; streams end. Transactions of different servers that touch no row in
    common were committed there in an order of its own."""
    with database.lock:
        log = database.log
        database.servers += 1
        for _ in range(len(log)):
            for i in range(len(log) - 1):
                if random.random() < 0.5 and _are_independent(*log[i : i + 2]):
                    log[i : i + 2] = reversed(log[i : i + 2])
        through = database.forgotten
        for i, entry in enumerate(log):
            log[i] = replace(entry, after=through)
            through = through.join(entry.end)


def _are_independent(one: Logged, other: Logged) -> bool:
    """Whether the two may be committed in either order."""
    tables = {write.table.table for write in one.writes} & {w.table.table for w in other.writes}
    return (
        one.server != other.server
        and _keys(one, tables).isdisjoint(_keys(other, tables))
        and not any(
            write.kind in {WriteKind.TRUNCATE, WriteKind.ALTER} and write.table.table in tables
            for write in (*one.writes, *other.writes)
        )
    )


def _keys(transaction: Logged, tables: Collection[TableId]) -> set[tuple[TableId, Key]]:
    """The rows of these tables that a transaction touches."""
    return {
        (write.table.table, tuple(row[name] for name in write.table.key))
        for write in transaction.writes
        if write.table.table in tables
        for row in (write.row, write.old)
        if row is not None
    }
