"""A landing zone that the bench fills by hand: a load of payments, and files of changes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import duckdb

from bench import payments
from mirrorlake.landing.metadata import Metadata, encode
from mirrorlake.model.change import MARKER_COLUMN, Marker
from mirrorlake.model.landed import FileKind, FileName, Footer

ROWS_PER_FILE = 625_000


@dataclass(frozen=True, slots=True)
class Key:
    """The key of the rows of a comparison: an expression of the number `g` for each column."""

    columns: Mapping[str, str]

    @property
    def names(self) -> list[str]:
        """All columns of the table, those of the key first."""
        return [*self.columns, *(name for name in payments.TYPES if name != payments.KEY)]

    def canonical(self) -> list[str]:
        """As `payments.canonical`."""
        shared = payments.canonical({payments.KEY: payments.KEY})
        return [*shared, *(name for name in self.columns if name != payments.KEY)]


NUMBER = Key({"id": "g::bigint"})
UUID = Key({"id": "md5('row ' || g)::uuid::varchar"})
TEXTS = Key({"region": "'region ' || g % 97", "id": "'order ' || lpad(g::varchar, 12, '0')"})

_ROW = """
    {key}, g * 7919 % 1000003 as account, md5(g::varchar) as reference,
    ((g * 31 % 1000000) / 100.0 + {salt})::decimal(12, 2) as amount,
    case when g % 10 = 0 then null else (g % 9973) / 64.0 end::double as rate,
    g % 3 = {salt} % 3 as settled, (g % 7)::integer as status,
    date '2020-01-01' + (g % 2000)::integer as booked_on,
    timestamptz '2020-01-01 00:00:00.123456+00' + to_seconds(g % 100000000) as created_at,
    '{{"vip": ' || (g % 2 = 0) || ', "attempt": ' || {salt} || ', "channel": "c' || g % 5 || '"}}'
        as details,
    case when g % 4 = 0 then null else 'Paid by transfer no. ' || g || ', "as agreed"' end as note
"""


class Zone:
    """One table folder below `root`, with its files under growing numbers."""

    def __init__(self, root: Path, key: Key = NUMBER) -> None:
        self._folder = root / "Files/LandingZone" / payments.TABLE.split(".")[1]
        self._key = key

    @property
    def name(self) -> str:
        return self._folder.name

    def load(self, rows: int) -> list[Path]:
        """Land the rows 1..rows as a load. Returns the files."""
        self._folder.mkdir(parents=True)
        metadata = encode(Metadata(key_columns=tuple(self._key.columns)))
        (self._folder / "_metadata.json").write_bytes(metadata)
        blocks = list(_blocks(rows))
        stream = str(uuid.uuid4())
        return [
            _write(
                self._folder / str(FileName(number)),
                f"select {payment(self._key, 0)} from range({first}, {last + 1}) r(g)",
                Footer(stream, FileKind.LOAD, "0/1:0", "0/1:0", complete=last == rows),
            )
            for number, (first, last) in enumerate(blocks, start=1)
        ]

    def land(self, number: int, changes: Path) -> None:
        """Publish a file of changes."""
        (self._folder / str(FileName(number))).hardlink_to(changes)


def changes(path: Path, present: int, count: int, salt: int, key: Key = NUMBER) -> Path:
    """A file of changes to the rows 1..present: 80 % updates, 18 % inserts, 2 % deletions.

    One change per key, in no order; salt (above 0): other keys and other values.
    """
    updates, deletions = count * 80 // 100, count * 2 // 100
    inserts = count - updates - deletions
    first = present + 1 + salt * count
    return _write(
        path,
        f"""
        with touched as (
            select g, row_number() over (order by hash(g + {salt} * 1000003)) as place
            from range(1, {present + 1}) r(g)
            qualify place <= {updates + deletions}
        ), keys as (
            select g, case when place <= {updates} then {int(Marker.UPDATE)}
                           else {int(Marker.DELETE)} end::tinyint as marker from touched
            union all
            select g, {int(Marker.INSERT)}::tinyint from range({first}, {first + inserts}) r(g)
        )
        select {payment(key, salt)}, marker as {MARKER_COLUMN} from keys order by hash(g)
        """,
    )


def history(folder: Path, count: int, keys: int, files: int) -> list[Path]:
    """Files of upserts, in all `count` of about as many keys, in a random order that `seq` says."""
    each = count // files
    return [
        _write(
            folder / str(FileName(number + 1)),
            f"""
            with drawn as (
                select seq, (hash(seq) % {keys})::bigint as g
                from range({number * each}, {(number + 1) * each}) r(seq)
            )
            select {payment(NUMBER, 1)}, seq, {int(Marker.UPSERT)}::tinyint as {MARKER_COLUMN}
            from drawn order by seq
            """,
        )
        for number in range(files)
    ]


def payment(key: Key, salt: int) -> str:
    """The columns of a row, as SQL over its number `g`."""
    columns = ", ".join(f"{value} as {name}" for name, value in key.columns.items())
    return _ROW.format(key=columns, salt=salt)


def _blocks(rows: int) -> Iterator[tuple[int, int]]:
    for first in range(1, rows + 1, ROWS_PER_FILE):
        yield first, min(first + ROWS_PER_FILE - 1, rows)


def _write(path: Path, query: str, footer: Footer | None = None) -> Path:
    facts = footer.encode() if footer else {}
    said = ", ".join(f"'{name}': '{value}'" for name, value in facts.items())
    noted = f", kv_metadata {{{said}}}" if facts else ""
    connection = duckdb.connect()
    connection.execute("set TimeZone = 'UTC'")
    connection.execute(f"copy ({query}) to '{path}' (format parquet, compression zstd{noted})")
    return path
