"""Any value: what is loaded and what is captured is what was inserted."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrorlake.sources.postgresql.source import PostgresSource
from mirrorlake.sources.table import SourceTable
from tests.conformance.scene import Reader, events, keys_of, named, streaming
from tests.conftest import VERSIONS, Database, database_on
from tests.profiles import tries
from tests.sources.postgresql.array_texts import write_array
from tests.sources.postgresql.captured import BEGINNING, Captured
from tests.sources.postgresql.type_cases import shown

pytestmark = pytest.mark.postgres

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=40)
BOUNDS = (datetime.min, datetime.max)  # noqa: DTZ901
MOMENTS = st.datetimes() | st.sampled_from(BOUNDS)
DIGITS = st.integers(-(10**20) + 1, 10**20 - 1)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


@dataclass(frozen=True)
class Type:
    """A type, its values, their text for the server, and what is expected of them in a table."""

    name: str
    values: st.SearchStrategy[Any]
    text: Callable[[Any], str] = str
    expected: Callable[[Any], Any] = lambda value: value
    read: Callable[[Any], Any] = lambda found: found

    def __str__(self) -> str:
        return self.name


def plain(value: Decimal) -> str:
    """As PostgreSQL writes it: without exponent, and zero without a sign."""
    return f"{abs(value) if value == 0 else value:f}"


def scaled(places: int) -> Callable[[int], Decimal]:
    return lambda number: Decimal(number).scaleb(-places)


def json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def in_utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=ZoneInfo("UTC"), fold=0)


TYPES = [
    Type("boolean", st.booleans()),
    Type("smallint", st.integers(-(2**15), 2**15 - 1)),
    Type("integer", st.integers(-(2**31), 2**31 - 1)),
    Type("bigint", st.integers(-(2**63), 2**63 - 1)),
    Type("real", st.floats(width=32), repr),
    Type("double precision", st.floats(), repr),
    Type(
        "numeric", st.builds(Decimal.scaleb, DIGITS.map(Decimal), st.integers(-9, 0)), plain, plain
    ),
    Type("numeric(38,10)", DIGITS.map(lambda n: Decimal(n).scaleb(-10)), plain),
    Type("numeric(18,5)", st.integers(-(10**18) + 1, 10**18 - 1).map(scaled(5)), plain),
    Type("numeric(7,7)", st.integers(-(10**7) + 1, 10**7 - 1).map(scaled(7)), plain),
    Type("numeric(12)", st.integers(-(10**12) + 1, 10**12 - 1).map(Decimal), plain),
    Type("text", TEXTS),
    Type("varchar(40)", TEXTS),
    Type("bytea", st.binary(max_size=50), lambda value: "\\x" + value.hex()),
    Type("date", st.dates() | st.sampled_from([date.min, date.max])),
    Type("timestamp", MOMENTS, str, in_utc),
    Type("timestamptz", MOMENTS, lambda value: f"{value}+00", in_utc),
    Type("uuid", st.uuids(), str, str),
    Type("json", JSON.map(json_text)),
    Type("jsonb", JSON, json_text, json_text, lambda found: json_text(json.loads(found))),
    Type("text[]", st.lists(st.none() | TEXTS), write_array, read=json.loads),
    Type(
        "bigint[]",
        st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)),
        lambda value: write_array([None if n is None else str(n) for n in value]),
        read=json.loads,
    ),
]


@dataclass(repr=False)
class Channel:
    """A table for each type, with an open stream."""

    database: Database
    source: PostgresSource
    tables: Sequence[SourceTable]
    reader: Reader
    numbers: Iterator[int]

    def carried(
        self, type_: str, texts: Sequence[str], expression: str | None = None
    ) -> tuple[list[Any], list[Any]]:
        """Insert values in one statement. Returns them as they are loaded and as captured."""
        table = named(self.tables, table_of(type_))
        keys = list(itertools.islice(self.numbers, len(texts)))
        self.database.sql.execute(
            f"insert into {table.table.name} select id, {expression or f't::{type_}'} "
            "from unnest(%s::int[], %s::text[]) as rows(id, t)",
            [keys, list(texts)],
        )
        found = events(self.reader.read_to(self.source.current()))
        self.reader.stream.acknowledge(found[-1].through)
        rows = self.source.reread(table, keys_of(keys)).sort_by("id")
        return rows["v"].to_pylist(), [event.row["v"] for event in found]


def table_of(type_: str) -> str:
    letters = "".join(c if c.isalnum() else "_" for c in type_)
    return f"v_{letters}"


@pytest.fixture(scope="module", params=VERSIONS)
def channel(request: pytest.FixtureRequest) -> Iterator[Channel]:
    for database in database_on(request.getfixturevalue(f"postgres{request.param}")):
        captured = Captured(database, database.settings())
        names = {type_.name for type_ in TYPES}
        captured.begin(*(f"create table {table_of(n)} (id int primary key, v {n})" for n in names))
        source = captured.source()
        with streaming(source, captured.tables, BEGINNING) as reader:
            yield Channel(database, source, captured.tables, reader, itertools.count())
        captured.close()


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_values_come_as_they_were_inserted(channel: Channel, type_: Type) -> None:
    @given(st.lists(type_.values, min_size=1, max_size=50))
    @settings(max_examples=tries(12))
    def come_as_they_were_inserted(values: list[Any]) -> None:
        loaded, captured = channel.carried(type_.name, [type_.text(value) for value in values])
        expected = shown([type_.expected(value) for value in values])
        assert shown([type_.read(found) for found in loaded]) == expected
        assert shown([type_.read(found) for found in captured]) == expected

    come_as_they_were_inserted()


# All that PostgreSQL has, from 2000-01-01 and from 1970-01-01 on; half of them near what Delta has.
DAYS = st.integers(-2_451_545, 2_145_031_948) | st.integers(-740_000, 2_930_000)
SECONDS = st.integers(-210_866_803_200, 9_214_646_400_000) | st.integers(
    -62_200_000_000, 253_500_000_000
)


def test_days_outside_the_years_1_to_9999_become_the_nearest_day(channel: Channel) -> None:
    epoch, last = date(2000, 1, 1).toordinal(), date.max.toordinal()

    @given(st.lists(DAYS, min_size=1, max_size=50))
    @settings(max_examples=tries(20))
    def become_the_nearest(days: list[int]) -> None:
        texts = [str(day) for day in days]
        loaded, captured = channel.carried("date", texts, "date '2000-01-01' + t::int")
        nearest = [date.fromordinal(min(max(epoch + day, 1), last)) for day in days]
        assert loaded == nearest
        assert captured == nearest

    become_the_nearest()


def test_moments_outside_the_years_1_to_9999_become_the_nearest_moment(channel: Channel) -> None:
    first, last = (moment.replace(tzinfo=UTC).timestamp() for moment in BOUNDS)

    def nearest(second: int) -> datetime:
        if second < first:
            return in_utc(BOUNDS[0])
        return (
            datetime.fromtimestamp(second, ZoneInfo("UTC")) if second < last else in_utc(BOUNDS[1])
        )

    @given(st.lists(SECONDS, min_size=1, max_size=50))
    @settings(max_examples=tries(20))
    def become_the_nearest(seconds: list[int]) -> None:
        texts = [str(second) for second in seconds]
        loaded, captured = channel.carried("timestamptz", texts, "to_timestamp(t::float8)")
        assert loaded == captured == [nearest(second) for second in seconds]

    become_the_nearest()


def test_the_list_of_types_has_no_type_twice() -> None:
    assert len({table_of(type_.name) for type_ in TYPES}) == len(TYPES)
