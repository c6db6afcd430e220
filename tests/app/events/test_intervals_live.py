"""Intervals of any length as event files, and as tables of these."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest
from structlog.testing import capture_logs

from mirrorlake import config
from mirrorlake.app.mirror import Mirror
from mirrorlake.capture.records.records import Records
from mirrorlake.root import LANDING
from mirrorlake.sources.replaced import VALUES_REPLACED
from mirrorlake.storage.local import LocalStore
from tests.app.events.test_live import projects, table
from tests.capture.test_event_intervals import LEAST_RECORD, MOST_RECORD, length
from tests.conftest import Database

SPANS = [
    "2147483648 hours",
    "-2147483649 hours -59 mins -59.999999 secs",
    "2562047788:00:54.775807",
    "-2562047788:00:54.775807",
    "-196000000 days 1 hour",
    "178956970 years 7 mons 196000000 days 23:59:59.999999",
    "1 mon -1 days",
]
INFINITE = ["infinity", "-infinity", None]
CREATE = """
create schema a;
create table a.spans (id int primary key, span interval, spans interval[]);
create table a.others (id int primary key);
"""


def insert(database: Database, values: list[str | None], start: int) -> None:
    with psycopg.connect(database.url, autocommit=True) as connection:
        for number, value in enumerate(values, start):
            row = [number, value, [value]]
            connection.execute("insert into a.spans values (%s, %s, %s::interval[])", row)


def with_extremes(folder: Path, dates: str) -> Mirror:
    """What writes the files, with another setting for infinities."""
    file = folder / "mirrorlake.yaml"
    found = file.read_text().replace("\ndest", f"\n  extremes: {{dates: {dates}}}\ndest")
    file.write_text(found)
    return Mirror(config.load(file))


def seconds(micros: int) -> str:
    return f"{'-' if micros < 0 else ''}{abs(micros) // 1_000_000}.{abs(micros) % 1_000_000:06}"


def text(record: dict[str, int]) -> str:
    """As a table of events has it."""
    return f"P{record['months']}MT{record['hours']}H{seconds(record['micros'])}S"


CLAMPED = [text(MOST_RECORD), text(LEAST_RECORD), None]


@pytest.mark.postgres
@pytest.mark.clause("ST-121", "ST-154")
@pytest.mark.parametrize("form", ["avro", "json"])
def test_tables_of_events_have_the_intervals_of_the_database(
    database: Database, tmp_path: Path, form: str
) -> None:
    """As loaded rows and as changes: the lengths are those that the texts of a landing zone have,
    and infinities are clamped."""
    database.execute(CREATE)
    writes, reads = projects(tmp_path, database, form)
    for start in (0, 100):
        insert(database, [*SPANS, *INFINITE], start)
        with capture_logs() as logs:
            writes.capture_once()
        replaced = {log["column"] for log in logs if log["event"] == VALUES_REPLACED}
        assert replaced == {"span", "spans"}
        assert not reads.apply_once().errors
    assert not Records(LocalStore(tmp_path / "root"), LANDING).stopped()
    with psycopg.connect(database.url) as connection:
        connection.execute("set intervalstyle to iso_8601")
        wanted = connection.execute(
            "select id, span::text from a.spans where isfinite(span)"
        ).fetchall()
    found = table(tmp_path, "spans")
    assert {number: length(found[number]["span"]) for number, _text in wanted} == {
        number: length(text) for number, text in wanted
    }
    for start in (len(SPANS), 100 + len(SPANS)):
        told = [found[number]["span"] for number in range(start, start + len(INFINITE))]
        assert told == CLAMPED
    for row in found.values():
        assert row["spans"] == ("[null]" if row["span"] is None else f'["{row["span"]}"]')


@pytest.mark.postgres
@pytest.mark.clause("ST-121")
@pytest.mark.parametrize("form", ["avro", "json"])
def test_infinite_intervals_are_null_where_infinite_dates_are(
    database: Database, tmp_path: Path, form: str
) -> None:
    database.execute(CREATE)
    _writes, reads = projects(tmp_path, database, form)
    writes = with_extremes(tmp_path, '"null"')
    for start in (0, 100):
        insert(database, ["1 hour", *INFINITE], start)
        writes.capture_once()
        assert not reads.apply_once().errors
    told = [row["span"] for _number, row in sorted(table(tmp_path, "spans").items())]
    assert told == ["P0MT1H0.000000S", None, None, None] * 2


@pytest.mark.postgres
@pytest.mark.clause("ST-121")
@pytest.mark.parametrize(
    ("dates", "value", "why"),
    [("error", "infinity", "'infinity'"), ("clamp", "2147483647 days", "longer than")],
)
@pytest.mark.parametrize("is_loaded", [True, False])
def test_an_interval_that_no_event_can_have_stops_its_table_alone(
    database: Database, tmp_path: Path, dates: str, value: str, why: str, *, is_loaded: bool
) -> None:
    database.execute(CREATE)
    _writes, reads = projects(tmp_path, database, "avro")
    writes = with_extremes(tmp_path, dates)
    if not is_loaded:
        writes.capture_once()
    insert(database, [value], 1)
    database.execute("insert into a.others values (7)")
    writes.capture_once()
    reads.apply_once()
    (stopped,) = Records(LocalStore(tmp_path / "root"), LANDING).stopped().items()
    assert (stopped[0], stopped[1]["code"]) == ("a.spans", "bad_value")
    assert why in str(stopped[1])
    assert [*table(tmp_path, "others")] == [7]


@pytest.mark.full
@pytest.mark.postgres
@pytest.mark.clause("ST-134", "ST-154")
@pytest.mark.parametrize("form", ["avro", "json"])
def test_infinite_days_in_arrays_are_clamped_as_those_of_columns(
    database: Database, tmp_path: Path, form: str
) -> None:
    """As loaded rows and as changes. The table stopped."""
    database.execute(CREATE)
    database.execute(
        "alter table a.spans add days date[], add moments timestamp[], add instants timestamptz[]"
    )
    writes, reads = projects(tmp_path, database, form)
    for number in (1, 2):
        database.execute(
            f"insert into a.spans values ({number}, null, null,"
            " '{infinity,2026-11-30,0044-03-15 BC}',"
            " '{{-infinity,NULL},{2026-11-30 12:00:00.5,10000-01-01}}', '{infinity}')"
        )
        writes.capture_once()
        assert not reads.apply_once().errors
    assert not Records(LocalStore(tmp_path / "root"), LANDING).stopped()
    found = table(tmp_path, "spans")
    for number in (1, 2):
        assert json.loads(found[number]["days"]) == ["9999-12-31", "2026-11-30", "0001-01-01"]
        (first, none), (moment, last) = json.loads(found[number]["moments"])
        assert (first[:19], none) == ("0001-01-01 00:00:00", None)
        assert (moment[:21], last[:26]) == ("2026-11-30 12:00:00.5", "9999-12-31 23:59:59.999999")
        assert json.loads(found[number]["instants"])[0][:26] == "9999-12-31 23:59:59.999999"
