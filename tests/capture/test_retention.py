"""How much of its log a source keeps: its growth, its limit, and what happens beyond that."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest

from mirrorlake import root
from mirrorlake.app.status.source_log import retention_of, sentence
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.capture.watch.retention import LogRetention, LogRetentionWatch, RetentionPolicy
from mirrorlake.errors import SourceGap
from mirrorlake.model.clock import WallClock
from mirrorlake.sources.base import RetainedLog
from mirrorlake.sources.postgresql.source import PostgresSource
from mirrorlake.storage.local import LocalStore
from tests.capture.landing import landing_capture
from tests.conftest import Database
from tests.doubles.clock import START

MIB = 1 << 20


def looked(*sizes: int, budget: int | None = None, left: int | None = None) -> LogRetention:
    """The last of several looks, each a minute after the one before."""
    watch = LogRetentionWatch(budget)
    for minute, size in enumerate(sizes):
        found = watch.look(START + timedelta(minutes=minute), RetainedLog(size, left))
    return found


def test_growth_is_measured_over_some_minutes() -> None:
    assert looked(100).growth is None
    assert looked(100, 700).growth == 10.0
    assert looked(*[0] * 5, *[600 * n for n in range(11)]).growth == 10.0


def test_the_limit_is_the_budget_or_that_of_the_source() -> None:
    assert (looked(100).limit, looked(100).is_budget) == (None, False)
    assert (looked(100, left=50).limit, looked(100, left=50).is_budget) == (150, False)
    found = looked(100, budget=120, left=50)
    assert (found.limit, found.is_budget, found.is_over) == (120, True, False)
    assert looked(121, budget=120).is_over


def test_the_time_until_the_limit_follows_from_the_growth() -> None:
    assert looked(0, 600, budget=6600).seconds_left == 600.0
    assert looked(600, 0, budget=6600).seconds_left is None
    assert looked(0, 600).seconds_left is None


def test_it_is_told_in_words() -> None:
    assert sentence(looked(5 * MIB)) == "5.0 MiB retained by the source"
    assert sentence(looked(MIB, budget=2 * MIB)).endswith("; capture.retained_limit is 2.0 MiB")
    growing = looked(0, 60 * MIB, left=60 * MIB)
    assert sentence(growing).endswith("the source's limit of 120.0 MiB is reached in 1:00")
    assert "more than capture.retained_limit of 1.0 MiB" in sentence(looked(2 * MIB, budget=MIB))


def test_what_is_recorded_is_read_back(store: LocalStore) -> None:
    assert retention_of(store) is None
    found = looked(0, 600, budget=6600)
    Records(store, root.LANDING).write_retained(found.facts())
    assert retention_of(store) == found
    store.replace(f"{root.LANDING}/_mirrorlake/retained.json", b"{")
    assert retention_of(store) is None


@pytest.mark.full
@pytest.mark.postgres
@pytest.mark.parametrize("policy", RetentionPolicy)
def test_a_source_that_keeps_too_much_is_told_or_released(
    database: Database, store: LocalStore, policy: RetentionPolicy
) -> None:
    settings = CaptureSettings(
        load_workers=1,
        one_thread=True,
        watch_seconds=0.0,
        retained_limit=MIB,
        retained_policy=policy,
    )
    database.execute("create table apples (id int primary key)", "insert into apples values (1)")
    source = PostgresSource(database.settings())
    capture = landing_capture(source, store, settings, WallClock())
    capture.open()
    # The log is kept from the oldest open transaction on.
    with database.sql.transaction(), psycopg.connect(database.url, autocommit=True) as other:
        database.execute("insert into apples values (2)")
        found = None
        for _ in range(3):
            other.execute("select pg_logical_emit_message(true, '', repeat('x', 1 << 20))")
            try:
                capture._look_at_log()
            except SourceGap as gap:
                found = gap
                break
    capture.close()
    kept = retention_of(store)
    assert kept is not None
    assert kept.is_over
    slots = "select count(*) from pg_replication_slots where database = current_database()"
    if policy is RetentionPolicy.WARN:
        assert found is None
        assert database.sql.execute(slots).fetchone() == (1,)
        return
    assert found is not None
    assert "mirrorlake repair" in found.hint
    assert database.sql.execute(slots).fetchone() == (0,)
    repaired = landing_capture(source, store, replace(settings, retained_limit=None), WallClock())
    assert repaired.repair().done().is_needed
    repaired.open()
    repaired.once()
    repaired.close()
