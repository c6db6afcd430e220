"""Tables of PostgreSQL in the order of their keys, whatever type and collation these have."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from contextlib import closing
from datetime import date
from typing import Any

import pyarrow as pa
import pytest
from psycopg import sql

from mirrorlake.capture.backfill.reading import ChunkLimits, ReadChunk, chunks
from mirrorlake.errors import CannotBackfill
from mirrorlake.model.keys import KeyRange, bound_of
from mirrorlake.sources.postgresql.reading import key_ranges
from mirrorlake.sources.table import SourceTable
from tests.conformance.scene import named
from tests.profiles import some
from tests.sources.postgresql.captured import Captured

pytestmark = pytest.mark.postgres

WORDS = "'B', 'a', 'ab', 'ä', 'Z', 'é', ' x', 'x ', '10', '9', '', E'a\\tb', 'O''k', '😀', '￿'"
KEYS = {
    "text": f"select unnest(array[{WORDS}])",
    "varchar(9)": f"select unnest(array[{WORDS}])",
    "char(4)": "select unnest(array['a', 'b', 'a b', 'B', E'a\\t'])",
    "uuid": "select gen_random_uuid() from generate_series(1, 30)",
    "numeric": "select unnest(array[10, 9, -1, 1.5, 1.50001, 0])",
    "numeric(9,3)": "select unnest(array[10, 9, -1, 1.5, 1.501, 0])",
    "int": "select g - 5 from generate_series(1, 20) g",
    "bigint": "select unnest(array[9223372036854775807, -9223372036854775808, 0])",
    "bool": "select unnest(array[true, false])",
    "date": "select date '1969-12-30' + g from generate_series(1, 20) g",
    "timestamp": "select timestamp '1969-12-31 23:59:59.999998' + g * interval '1 us' "
    "from generate_series(1, 9) g",
    "timestamptz": "select timestamptz '2026-01-01' + g * interval '1 us' "
    "from generate_series(1, 9) g",
    "bytea": "select unnest(array['', '\\x00', '\\xff', '\\x00ff']::bytea[])",
    "inet": "select unnest(array['10.0.0.1', '9.0.0.1', '10.0.0.0/8', '::1']::inet[])",
    "mood": "select unnest(array['sad', 'ok', 'happy']::mood[])",
    "interval": "select unnest(array['1 day', '23 hours', '1 mon']::interval[])",
    "jsonb": "select unnest(array['{\"a\": 1}', '[]', '2', '10']::jsonb[])",
}


def read(
    captured: Captured, table: SourceTable, keys: KeyRange, rows: int, *, most: int | None = None
) -> list[ReadChunk]:
    """The first chunks of a snapshot."""
    snapshot = captured.source().snapshot()
    try:
        found = []
        for chunk in chunks(snapshot, table, keys, ChunkLimits(rows)):
            found.append(chunk)
            if len(found) == most:
                break
        return found
    finally:
        snapshot.close()


def values(found: Sequence[ReadChunk]) -> list[dict[str, Any]]:
    return [row for chunk in found for row in chunk.rows.to_pylist()]


def described(captured: Captured, name: str) -> SourceTable:
    return named(captured.source().discover(), name)


@pytest.mark.full
def test_every_type_of_key_is_read_in_chunks_and_taken_up_behind_any_of_them(
    captured: Captured,
) -> None:
    captured.run("create type mood as enum ('sad', 'ok', 'happy')")
    for number, (kind, filled) in enumerate(KEYS.items()):
        captured.run(
            f"create table t{number} (n int default 1, k {kind} primary key)",
            f"insert into t{number} (k) {filled}",
        )
    for number, kind in enumerate(KEYS):
        table = described(captured, f"t{number}")
        (whole,) = read(captured, table, KeyRange(), 1_000)
        parts = read(captured, table, KeyRange(), 2)
        assert values(parts) == values([whole]), kind
        (count,) = captured.database.sql.execute(f"select count(*) from t{number}").fetchone() or ()
        assert whole.rows.num_rows == count, kind
        (first,) = read(captured, table, KeyRange(), 2, most=1)
        assert first.keys.high is not None
        (rest,) = read(captured, table, KeyRange().beyond(first.keys.high), 1_000)
        assert [*values([first]), *values([rest])] == values([whole]), kind


def test_pairs_are_read_in_the_order_of_both(captured: Captured) -> None:
    captured.run(
        "create table pairs (word text, number int, primary key (number, word))",
        f"insert into pairs select unnest(array[{WORDS}]), g from generate_series(1, 3) g",
    )
    table = described(captured, "pairs")
    (whole,) = read(captured, table, KeyRange(), 1_000)
    assert values(read(captured, table, KeyRange(), 4)) == values([whole])
    assert whole.rows.num_rows == 45
    captured.run("analyze pairs")
    with closing(captured.source().snapshot()) as snapshot:
        low, high = (pa.table({"number": pa.array([n], pa.int32())}) for n in (2, 3))
        ranges = (KeyRange(), KeyRange(low, high, is_closed=True))
        assert [snapshot.estimated(table, keys) for keys in ranges] == [45, 30]
        captured.run("alter table pairs rename number to count")
        assert snapshot.estimated(table, ranges[1]) is None


@pytest.mark.full
@pytest.mark.parametrize("partitioned", [False, True])
def test_rows_of_a_table_that_was_never_analyzed_are_estimated(
    captured: Captured, partitioned: bool
) -> None:
    by = " partition by range (k)" if partitioned else " with (autovacuum_enabled = false)"
    captured.run(f"create table numbers (k int primary key, note text){by}")
    for n in range(2) if partitioned else ():
        bounds = f"from ({n * 100_000}) to ({(n + 1) * 100_000})"
        off = "with (autovacuum_enabled = false)"
        captured.run(f"create table n{n} partition of numbers for values {bounds} {off}")
    captured.run("insert into numbers select g, repeat('x', 80) from generate_series(0, 199999) g")
    table = described(captured, "numbers")
    with closing(captured.source().snapshot()) as snapshot:
        low, high = (pa.table({"k": pa.array([n], pa.int32())}) for n in (50_000, 149_999))
        found = snapshot.estimated(table, KeyRange(low, high, is_closed=True))
        whole = snapshot.estimated(table, KeyRange())
    assert found == pytest.approx(100_000, rel=0.2)
    assert whole == pytest.approx(200_000, rel=0.1)


def test_partitions_are_read_and_heirs_are_not(captured: Captured) -> None:
    captured.run(
        "create table parts (k int primary key) partition by range (k)",
        "create table low partition of parts for values from (0) to (10)",
        "create table high partition of parts for values from (10) to (20)",
        "insert into parts select generate_series(1, 15)",
        "create table parent (k int primary key)",
        "create table heir () inherits (parent)",
        "insert into parent values (1)",
        "insert into heir values (2)",
    )
    (parts,) = read(captured, described(captured, "parts"), KeyRange(), 99)
    assert values([parts]) == [{"k": n} for n in range(1, 16)]
    (parent,) = read(captured, described(captured, "parent"), KeyRange(), 99)
    assert values([parent]) == [{"k": 1}]


def test_a_moment_that_no_calendar_has_is_refused(captured: Captured) -> None:
    captured.run(
        "create table odd (k timestamp primary key)", "insert into odd values ('12026-01-01')"
    )
    table = described(captured, "odd")
    # A moment that Python's calendar does not know, as the end of an earlier chunk.
    moment = pa.array([2**60], pa.timestamp("us", "UTC"))
    with pytest.raises(CannotBackfill):
        read(captured, table, KeyRange(pa.table({"k": moment})), 1)


def test_a_key_with_the_name_of_an_output_column_is_read_in_its_order(captured: Captured) -> None:
    # Without an alias, PostgreSQL names what makes the text of a value `case`.
    captured.run(
        'create table cases ("case" int primary key, opened interval)',
        "insert into cases select g, g * interval '1 day' from generate_series(1, 12) g",
        'create table big ("case" numeric(30, 0) primary key)',
        "insert into big select generate_series(1, 12)",
    )
    for name in ("cases", "big"):
        found = values(read(captured, described(captured, name), KeyRange(), 5))
        assert [row["case"] for row in found] == list(range(1, 13)), name


ENDS = {
    "date": ("0001-01-01", "9999-12-31"),
    "timestamp": ("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"),
    "timestamptz": ("0001-01-01 00:00:00+00", "9999-12-31 23:59:59.999999+00"),
}


@pytest.mark.full
@pytest.mark.parametrize("key", ["day", "day, n", "n, day", "many, day, n", "day, other"])
@pytest.mark.parametrize("kind", some(ENDS))
def test_infinities_of_a_key_stand_where_the_mirror_has_them(
    captured: Captured, kind: str, key: str
) -> None:
    """Beside rows with the days that they become."""
    first, last = ENDS[kind]
    days = ["infinity", "2024-02-29", "-infinity", *([] if key == "day" else [last, first])]
    listed = ", ".join(f"'{day}'" for day in days)
    captured.run(
        f"create table days (day {kind}, n int, many int, other {kind}, primary key ({key}))",
        "insert into days select day, n, n % 2, timestamp '2024-01-01' + n * interval '1 day' "
        "from (select day, row_number() over (order by md5(day || '/' || g)) n "
        f"from unnest(array[{listed}]::{kind}[]) day, "
        f"generate_series(1, {1 if key == 'day' else 4}) g) q",
    )
    table, count = described(captured, "days"), 3 if key == "day" else 20
    with closing(captured.source().snapshot()) as snapshot:
        (whole,) = chunks(snapshot, table, KeyRange(), ChunkLimits(1_000))
        assert whole.rows.num_rows == count
        assert values(list(chunks(snapshot, table, KeyRange(), ChunkLimits(3)))) == values([whole])
        for place in range(count):
            at = bound_of(whole.rows, table.key, place)
            for keys, part in (
                (KeyRange().beyond(at), slice(place + 1, None)),
                (KeyRange().ends_at(at), slice(place + 1)),
                (KeyRange(at.select([0]), at.select([0]), is_closed=True), None),
                (KeyRange(least=at.select(["day"])) if "day" in key else KeyRange(), None),
                (KeyRange(below=at.select(["day"])) if "day" in key else KeyRange(), None),
            ):
                found = values(list(chunks(snapshot, table, keys, ChunkLimits(1_000))))
                if part is None:
                    chosen = whole.rows.filter(pa.array(keys.contains(whole.rows)))
                    assert found == chosen.to_pylist()
                else:
                    assert found == values([whole])[part]


@pytest.mark.parametrize("key", ["day, n", "n, day", "n, day, m"])
def test_a_table_that_may_have_infinities_is_read_by_its_index(
    captured: Captured, key: str
) -> None:
    captured.run(
        f"create table days (day date, n int, m int, primary key ({key}))",
        "insert into days select date '2024-01-01' + g, g, g from generate_series(1, 3000) g",
        "analyze days",
        "set enable_seqscan to off",
        "set enable_bitmapscan to off",
    )
    table, connection = described(captured, "days"), captured.database.sql
    one = pa.array([59], pa.int32())
    low = pa.table({"day": [date(2024, 2, 29)], "n": one, "m": one}).select(table.key)
    relation = sql.Composed([sql.SQL("only "), sql.Identifier("days")])
    keys = KeyRange(low)
    for stretch in key_ranges.stretches(table, keys):
        by_index = bool(key_ranges.unsure(table, stretch))
        query = key_ranges.copy(connection, table, relation, keys, [], stretch, by_index=by_index)
        asked = query.decode().removeprefix("copy (").rpartition(")")[0].rpartition(") to")[0]
        lines = [line for (line,) in connection.execute(f"explain {asked}").fetchall()]
        assert any("Index Cond" in line for line in lines)
        is_sorted = any("Sort" in line for line in lines)
        assert is_sorted == (stretch is key_ranges.KeyStretch.LAST)


def test_the_first_infinity_between_others_of_a_key_ends_the_reading_by_an_index(
    captured: Captured,
) -> None:
    captured.run(
        "create table days (a int, day date, n int, note text, primary key (a, day, n))",
        "insert into days select g % 2, case when g % 5000 < 5 then date 'infinity' + 0 "
        "when g % 5000 < 9 then date '9999-12-31' else date '2024-01-01' + g % 9000 end, "
        "20000 - g, repeat('x', 900) from generate_series(1, 20000) g",
    )
    table = described(captured, "days")
    found = values(read(captured, table, KeyRange(), 700))
    key = operator.itemgetter(*table.key)
    assert len(found) == 20_000
    assert found == sorted(found, key=key)
    assert [row for row in found if row["day"] == date.max]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("uuid", "C0000000-0000-0000-0000-000000000000"),
        ("number", "c"),
        ("text", "a\0"),
        ("oid", -5),
        ("oid", 1 << 32),
    ],
)
def test_a_bound_that_is_another_value_in_the_source_reads_nothing(
    captured: Captured, kind: str, value: object
) -> None:
    """As an earlier release may have recorded it: in the mirror it has other rows behind it."""
    captured.run("create domain number as uuid", f"create table things (k {kind} primary key)")
    table = described(captured, "things")
    bound = pa.table({"k": [value]})
    with pytest.raises(CannotBackfill, match="a bound is no value of its key column k"):
        read(captured, table, KeyRange(bound), 1)
