"""Loads: each row once, from any number of pieces and threads, as the table stood at the point."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest

from mirrorlake.errors import SourceUnavailable
from mirrorlake.sources.postgresql.reading import copy
from tests.conformance.scene import loaded, streaming, until
from tests.sources.postgresql.captured import BEGINNING, Captured

pytestmark = pytest.mark.postgres

APPLES = "create table apples (id int primary key, note text)"
FILL = "insert into apples select n, repeat('x', 500) from generate_series(1, {}) n"
PAGE = 8192


def test_a_large_table_is_read_in_pieces_that_hold_each_row_once(any_captured: Captured) -> None:
    # Updated and deleted rows leave gaps and move others to pages at the end.
    any_captured.run(
        APPLES,
        FILL.format(500),
        "delete from apples where id % 7 = 0",
        "update apples set note = 'y' where id % 3 = 0",
    )
    source = any_captured.source(part_bytes=4 * PAGE)
    (table,) = source.discover()
    snapshot = source.snapshot()
    parts = snapshot.parts(table)
    found = Counter(row["id"] for row in loaded(snapshot, table))
    snapshot.close()
    assert len(parts) > 5
    assert found == Counter(n for n in range(1, 501) if n % 7)


def test_pages_that_were_added_after_the_pieces_were_cut_are_read(captured: Captured) -> None:
    # The row is older than the snapshot; only the list of pieces is older than its page.
    captured.run(APPLES, FILL.format(100))
    source = captured.source(part_bytes=2 * PAGE)
    (table,) = source.discover()
    with ThreadPoolExecutor(1) as pool:
        snapshot = source.snapshot()
        parts = snapshot.parts(table)
        pool.submit(captured.run, "update apples set note = repeat('z', 500)").result()
        rows = [row for part in parts for b in snapshot.read(part) for row in b.to_pylist()]
        snapshot.close()
    assert Counter(row["id"] for row in rows) == Counter(range(1, 101))
    assert {row["note"] for row in rows} == {"x" * 500}


def test_pieces_may_be_read_from_several_threads(any_captured: Captured) -> None:
    any_captured.run(APPLES, FILL.format(500))
    source = any_captured.source(part_bytes=2 * PAGE)
    (table,) = source.discover()
    snapshot = source.snapshot()
    any_captured.run("delete from apples")
    with ThreadPoolExecutor(3) as pool:
        counts = pool.map(
            lambda part: sum(batch.num_rows for batch in snapshot.read(part)),
            snapshot.parts(table),
        )
        assert sum(counts) == 500
    snapshot.close()


def test_rows_are_read_in_blocks(captured: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy, "BLOCK", 4_096)
    captured.run(APPLES, FILL.format(40))
    source = captured.source()
    (table,) = source.discover()
    snapshot = source.snapshot()
    (part,) = snapshot.parts(table)
    sizes = [batch.num_rows for batch in snapshot.read(part)]
    snapshot.close()
    assert sum(sizes) == 40
    assert max(sizes) == 7


def test_a_byte_order_mark_at_the_beginning_of_a_block_belongs_to_the_value(
    captured: Captured,
) -> None:
    captured.run(
        "create table notes (note text)",
        "insert into notes values ('\ufeffa'), ('\ufeff'), ('\ufeff\ufeffb'), ('c')",
    )
    notes = [row["note"] for row in captured.snapshot("notes")]
    assert notes == ["\ufeffa", "\ufeff", "\ufeff\ufeffb", "c"]


def test_rows_of_nothing_but_null_are_read(captured: Captured) -> None:
    captured.run("create table notes (note text)", "insert into notes values (null), (''), (null)")
    assert [row["note"] for row in captured.snapshot("notes")] == [None, "", None]


def test_names_with_quotes_and_dots_are_read(captured: Captured) -> None:
    captured.begin(
        'create schema "odd ""schema"',
        'create table "odd ""schema"."a.b %s" ("k ""1" int primary key, "%%" text)',
    )
    found = captured.changes('insert into "odd ""schema"."a.b %s" values (1, \'x\')')
    assert [event.row for event in found] == [{'k "1': 1, "%%": "x"}]
    assert captured.snapshot("a.b %s") == [{'k "1': 1, "%%": "x"}]


def test_a_read_that_is_given_up_leaves_the_snapshot_as_it_was(captured: Captured) -> None:
    captured.run(APPLES, FILL.format(100))
    source = captured.source()
    (table,) = source.discover()
    snapshot = source.snapshot()
    (part,) = snapshot.parts(table)
    reading = snapshot.read(part)
    next(reading)
    reading.close()
    assert len(loaded(snapshot, table)) == 100
    snapshot.close()


def test_a_snapshot_that_is_closed_leaves_no_slot(captured: Captured) -> None:
    captured.run(APPLES)
    captured.source().snapshot().close()
    slots = "select slot_name from pg_replication_slots where database = current_database()"
    until(lambda: captured.database.sql.execute(slots).fetchall() == [])


def test_a_server_that_ends_the_connection_makes_the_source_unavailable(captured: Captured) -> None:
    captured.run(APPLES)
    source = captured.source()
    (table,) = source.discover()
    snapshot = source.snapshot()
    (part,) = snapshot.parts(table)
    captured.run(
        "select pg_terminate_backend(pid, 10000) from pg_stat_activity "
        "where application_name = 'mirrorlake' and datname = current_database()"
    )
    with pytest.raises(SourceUnavailable):
        list(snapshot.read(part))
    snapshot.close()


def test_a_connection_that_is_ended_while_it_makes_a_slot_is_an_outage(captured: Captured) -> None:
    captured.run("create table apples (id int)")
    query = "select pid from pg_locks where locktype = 'transactionid' and not granted"
    with psycopg.connect(captured.database.url) as writer, ThreadPoolExecutor(1) as pool:
        writer.execute("insert into apples values (1)")
        snapshot = pool.submit(captured.source().snapshot)
        until(lambda: captured.database.sql.execute(query).fetchone())
        captured.run(f"select pg_terminate_backend(pid) from ({query}) waiting")
        with pytest.raises(SourceUnavailable):
            snapshot.result(30)


TIMEOUTS = {"idle_session_timeout": 14, "idle_in_transaction_session_timeout": 14}
TIMEOUTS |= {"transaction_timeout": 17, "statement_timeout": 14}


def test_time_limits_of_the_database_are_not_those_of_a_load(any_captured: Captured) -> None:
    name = any_captured.database.name
    any_captured.run(APPLES, FILL.format(100))
    for timeout, since in TIMEOUTS.items():
        if any_captured.database.sql.info.server_version >= since * 10_000:
            any_captured.run(f"alter database {name} set {timeout} = '250ms'")
    any_captured.begin()
    source = any_captured.source()
    (table,) = source.discover()
    with streaming(source, [table], BEGINNING) as reader, closing(source.snapshot()) as snapshot:
        time.sleep(0.5)
        assert len(loaded(snapshot, table)) == 100
        any_captured.run("delete from apples where id > 50")
        assert len(reader.read_to(source.current())) > 0
