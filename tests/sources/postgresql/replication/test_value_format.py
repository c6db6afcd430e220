"""Values in the binary format of their types, and what has to come as text."""

from __future__ import annotations

import json
import random
import struct
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from mirrorlake.demo.server import EmbeddedServer
from mirrorlake.sources.chunk import Changes, Chunk
from mirrorlake.sources.postgresql import protocol
from mirrorlake.sources.postgresql.changed_rows import decoders_of
from mirrorlake.sources.postgresql.replication.value_format import BINARY_OFF
from mirrorlake.sources.postgresql.types.sent_values import sent_reader
from mirrorlake.sources.postgresql.types.values import Extremes
from tests.conformance.scene import events, faults, streaming
from tests.conftest import database_on
from tests.profiles import tries
from tests.sources.postgresql.captured import BEGINNING, Captured
from tests.sources.postgresql.replication.test_streamed import APPLES, MANY, stream_early
from tests.sources.postgresql.replication.test_two_phase import begin_two_phase, prepare
from tests.sources.postgresql.type_cases import CASES, SETUP, Case, shown

pytestmark = pytest.mark.postgres


def chunks(captured: Captured, *, binary: bool, extremes: Extremes | None = None) -> list[Chunk]:
    """Everything since the beginning, in one of the formats, which is not given up."""
    source = captured.source(binary=binary, extremes=extremes or Extremes())
    target = source.current()
    with capture_logs() as logs, streaming(source, captured.tables, BEGINNING) as reader:
        found = reader.read_to(target)
    assert not [entry for entry in logs if entry["event"] == BINARY_OFF]
    return found


def kinds(captured: Captured, monkeypatch: pytest.MonkeyPatch, *, binary: bool) -> set[str]:
    """The formats in which the values of tuples came."""
    found: set[str] = set()
    walk = protocol.walk

    def noting(*given: Any) -> protocol.Tuples:
        tuples = walk(*given)
        found.update(chr(kind) for kind in tuples.kind.ravel().tolist())
        return tuples

    with monkeypatch.context() as patched:
        patched.setattr(protocol, "walk", noting)
        chunks(captured, binary=binary)
    return found & {"t", "b"}


def rows(found: Sequence[Chunk]) -> list[tuple[Any, ...]]:
    """What happened, with values that are equal only with their types."""
    return [(one.table, one.kind, one.ordinal, shown([*one.row.values()])) for one in events(found)]


def types(found: Sequence[Chunk]) -> set[str]:
    changes = [part for chunk in found for part in chunk.parts if isinstance(part, Changes)]
    return {str(part.rows.schema) for part in changes}


def of_readable_types(captured: Captured) -> dict[str, Case]:
    """A column for each type that is read in binary format, by name, in the table `things`."""
    captured.run(SETUP)
    can = captured.database.sql.execute
    cases = {
        f"c{number}": case
        for number, case in enumerate(CASES)
        if can(f"select {case.needs}").fetchone()[0]
    }
    declared = ", ".join(f"{name} {case.type}" for name, case in cases.items())
    captured.run(f"create table every (id int primary key, {declared})")
    decoders = decoders_of(captured.discovered("every"), Extremes(), lambda *_given: None)
    readable = {decoder.column for decoder in decoders if sent_reader(decoder)}
    captured.run("drop table every")
    return {name: case for name, case in cases.items() if name in readable}


def literals(cases: dict[str, Case]) -> Iterator[str]:
    """Rows with all literals of each type, then one of NULL."""
    most = max(len(case.values) for case in cases.values())
    for number in range(most + 1):
        row = [[*case.values, *["null"] * (most + 1)][number] for case in cases.values()]
        yield f"({number}, {', '.join(row)})"


def test_a_value_is_the_same_in_both_formats(
    any_captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured = any_captured
    cases = of_readable_types(captured)
    declared = ", ".join(f"{name} {case.type}" for name, case in cases.items())
    captured.begin(
        f"create table things (id int primary key, {declared})",
        "alter table things replica identity full",
    )
    assert {"boolean", "numeric", "time", "mood", "small", '"char"', "macaddr", "text[]"} <= {
        case.type for case in cases.values()
    }
    for row in literals(cases):
        captured.run(f"insert into things values {row}")
    captured.run("update things set id = id + 1000", "delete from things")
    assert kinds(captured, monkeypatch, binary=True) == {"b"}
    assert kinds(captured, monkeypatch, binary=False) == {"t"}
    texts, values = (chunks(captured, binary=binary) for binary in (False, True))
    assert rows(values) == rows(texts)
    assert types(values) == types(texts)


DRAWN = {
    "n": "numeric",
    "d": "numeric(12, 3)",
    "w": "numeric(38, 5)",
    "f": "float8",
    "r": "real",
    "day": "date",
    "at": "timestamp",
    "tz": "timestamptz",
    "t": "time",
    "x": "text",
    "b": "bytea",
    "u": "uuid",
    "j": "jsonb",
    "i": "bigint",
    "s": "smallint",
    "o": "boolean",
    "m": "macaddr8",
    "tt": "timetz",
    "ia": "bigint[]",
    "xa": "text[]",
    "na": "numeric[]",
    "ba": "boolean[]",
    "ua": "uuid[]",
}
SOME_TEXT = 'a"\\é漢😀{},\n\t NUL'


def array(elements: Sequence[Any], chance: random.Random) -> str:
    """In the form of PostgreSQL, with NULLs, and of several dimensions now and then."""
    escaped = [str(one).replace("\\", "\\\\").replace('"', '\\"') for one in elements]
    written = ["NULL" if chance.random() < 0.1 else f'"{one}"' for one in escaped]
    if len(written) == 4 and chance.random() < 0.5:
        return f"{{{{{written[0]},{written[1]}}},{{{written[2]},{written[3]}}}}}"
    return f"{{{','.join(written)}}}"


def drawn(chance: random.Random) -> list[Any]:
    """A value of each of these types, as a parameter of a query, with special ones among them."""
    digits = "".join(chance.choices("0001234567899", k=chance.randrange(1, 40)))
    scale = chance.choice([0, 0, 1, 2, 3, 4, 7, 8, 20])
    number = f"{chance.choice(['-', ''])}{digits}e-{scale}"
    small = chance.randrange(-(10**12), 10**12) // 10 ** chance.randrange(13)
    moment = chance.randrange(-62_135_596_800, 253_402_300_800)
    odd, count = chance.random() < 0.1, chance.choice([0, 1, 2, 4, 4, 9])
    few = range(count)

    def clock() -> str:
        micros = chance.randrange(86_400 * 10**6) // 10 ** chance.randrange(7)
        return str(timedelta(microseconds=micros))

    row = [
        chance.choice(["NaN", "Infinity", "-Infinity", "1e60", "1e-40", "0.000"])
        if odd
        else number,
        f"{small}e-3",
        f"{chance.randrange(-(10**33), 10**33)}e-{chance.randrange(6)}",
        struct.unpack("d", chance.randbytes(8))[0],
        struct.unpack("f", chance.randbytes(4))[0],
        chance.choice(["infinity", "-infinity", "0044-03-15 BC", "10000-01-01"])
        if odd
        else str(date(1970, 1, 1) + timedelta(days=moment // 86_400)),
        *[
            chance.choice(["infinity", "-infinity", "4713-01-01 12:00 BC", "294276-12-31 23:59:59"])
            if odd
            else str(
                datetime(1970, 1, 1, tzinfo=UTC)
                + timedelta(seconds=moment, microseconds=chance.randrange(10**6))
            )
            for _ in range(2)
        ],
        clock() if not odd else "24:00:00",
        "".join(chance.choices(SOME_TEXT, k=chance.randrange(12))),
        chance.randbytes(chance.randrange(9)),
        str(uuid.UUID(bytes=chance.randbytes(16))),
        json.dumps({"a": [digits, None, small]}),
        chance.randrange(-(2**63), 2**63),
        chance.randrange(-(2**15), 2**15),
        odd,
        chance.randbytes(8).hex(),
        f"{clock()}{chance.choice(['+00', '+05:30', '-15:59:59', '-07', '+00:00:01'])}",
        array([chance.randrange(-(2**63), 2**63) for _ in few], chance),
        array(["".join(chance.choices(SOME_TEXT, k=chance.randrange(6))) for _ in few], chance),
        array(
            [f"{chance.randrange(-(10**9), 10**9)}e-{chance.randrange(12)}" for _ in few], chance
        ),
        array([chance.choice("tf") for _ in few], chance),
        array([uuid.UUID(bytes=chance.randbytes(16)) for _ in few], chance),
    ]
    return [None if chance.random() < 0.1 else value for value in row]


@pytest.mark.parametrize("seed", range(tries(4, quick=1)))
def test_drawn_values_are_the_same_in_both_formats(any_captured: Captured, seed: int) -> None:
    captured, chance = any_captured, random.Random(seed)
    declared = ", ".join(f"{name} {type_}" for name, type_ in DRAWN.items())
    captured.begin(f"create table things (id serial primary key, {declared})")
    places = ", ".join(
        f"%s::text::{type_}" if type_ != "bytea" else "%s" for type_ in DRAWN.values()
    )
    insert = f"insert into things ({', '.join(DRAWN)}) values ({places})"
    with captured.database.sql.cursor() as cursor:
        cursor.executemany(insert, [drawn(chance) for _ in range(1_000)])
    with capture_logs() as of_text:
        texts = chunks(captured, binary=False)
    with capture_logs() as of_values:
        values = chunks(captured, binary=True)
    assert len(rows(texts)) == 1_000
    assert rows(values) == rows(texts)
    assert of_values == of_text  # what was replaced


@pytest.mark.parametrize(
    "row",
    ["(1, 'infinity', null, null)", "(1, null, '0044-03-15 BC', null)", "(1, null, null, 'NaN')"],
)
def test_extremes_are_refused_in_the_same_words(captured: Captured, row: str) -> None:
    captured.begin(
        "create table things (id int primary key, d date, t timestamptz, n numeric(5, 2))"
    )
    captured.run(f"insert into things values {row}")
    extremes = Extremes(dates="error", numbers="error")
    one, other = (
        [fault.error.what for fault in faults(chunks(captured, binary=binary, extremes=extremes))]
        for binary in (False, True)
    )
    assert one == other != []


@pytest.mark.parametrize("key", ["'[0:1]={1,2}'", "'[1:2][5:6]={{1,2},{3,null}}'"])
def test_bounds_of_arrays_in_a_key_are_refused_in_the_same_words(
    captured: Captured, key: str
) -> None:
    captured.begin("create table things (v int[] primary key)")
    captured.run(f"insert into things values ('{{}}'), ('{{{{1,2}},{{3,4}}}}'), ({key})")
    one, other = (
        [fault.error.what for fault in faults(chunks(captured, binary=binary))]
        for binary in (False, True)
    )
    assert one == other != []


@pytest.mark.parametrize("way", ["whole", "in progress", "prepared", "prepared in progress"])
def test_a_transaction_with_a_value_that_is_not_read_comes_again_as_text(
    any_captured: Captured, way: str
) -> None:
    captured, gid = any_captured, f"{any_captured.database.name} 1"
    if "prepared" in way:
        begin_two_phase(captured, APPLES)
    else:
        captured.begin(APPLES)
    if "in progress" in way:
        stream_early(captured)
    changes = [
        MANY.format(1, 3_000),
        "alter table apples add place point",
        "insert into apples values (3001, 'a', '(1,2)')",
        MANY.format(3_002, 6_000),
    ]
    captured.run("insert into apples values (0, 'a')")
    if "prepared" in way:
        prepare(captured, gid, *changes)
        captured.run(f"commit prepared '{gid}'")
    else:
        captured.run("; ".join(changes))
    captured.run("insert into apples values (6001, 'a', '(3,4)')")
    source = captured.source(binary=True, streaming="in progress" in way, chunk_bytes=50_000)
    target = source.current()
    with capture_logs() as logs, streaming(source, captured.tables, BEGINNING) as reader:
        found = events(reader.read_to(target))
    assert [entry["reason"] for entry in logs if entry["event"] == BINARY_OFF] == [
        "column place of public.apples, of type point"
    ]
    assert [event.row["id"] for event in found] == [*range(6_002)]
    places = {event.row["id"]: event.row.get("place") for event in found}
    assert {id_: place for id_, place in places.items() if place} == {
        3_001: "(1,2)",
        6_001: "(3,4)",
    }


A_TYPE = """
    create type {0};
    create function {0}_in(cstring) returns {0} language internal immutable strict as 'textin';
    create function {0}_out({0}) returns cstring language internal immutable strict as 'textout';
    create function {0}_send({0}) returns bytea language internal immutable strict as '{1}';
    create type {0} (input = {0}_in, output = {0}_out, send = {0}_send)
"""


@pytest.mark.parametrize(("send", "is_read"), [("textsend", True), ("byteasend", False)])
def test_a_type_of_an_extension_is_read_that_is_sent_as_text(
    captured: Captured, monkeypatch: pytest.MonkeyPatch, send: str, *, is_read: bool
) -> None:
    """As citext is; one that is sent in any other way comes as text, whatever its name is."""
    captured.run(A_TYPE.format("citext", send))
    captured.begin("create table things (id int primary key, c citext, a citext[])")
    captured.run("insert into things values (1, 'a \"é\"', '{a,NULL,\"b c\"}')")
    assert kinds(captured, monkeypatch, binary=True) == {"b" if is_read else "t"}
    texts, values = (chunks(captured, binary=binary) for binary in (False, True))
    assert rows(values) == rows(texts)
    assert len(rows(texts)) == 1


OTHER_LETTERS = {"LATIN1": "é ß ÿ", "EUC_JP": "漢字", "KOI8R": "Привет", "SQL_ASCII": "é漢"}


@pytest.mark.full
@pytest.mark.parametrize("encoding", OTHER_LETTERS)
def test_texts_of_other_encodings_are_the_same_in_both_formats_and_in_a_load(
    postgres18: EmbeddedServer, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = OTHER_LETTERS[encoding]
    declared = {
        **dict.fromkeys(("name", "char(9)", "text", "mood"), f"'{letters}'"),
        **dict.fromkeys(("json", "jsonb"), f"""'{{"{letters}": "{letters}"}}'"""),
        **dict.fromkeys(
            ("text[]", "name[]", "mood[]"), f"array['{letters}', null]::name[]::text[]"
        ),
        "json[]": f"""array['"{letters}"']::json[]""",
    }
    columns = ", ".join(f"c{number} {type_}" for number, type_ in enumerate(declared))
    values = ", ".join(f"{value}::{type_}" for type_, value in declared.items())
    options = f"encoding '{encoding}' locale 'C' template template0"
    with contextmanager(database_on)(postgres18, options) as database:
        database.execute("set client_encoding to 'UTF8'")
        captured = Captured(database, database.settings())
        captured.begin(
            f"create type mood as enum ('{letters}')", f"create table things ({columns})"
        )
        captured.run(f"insert into things values ({values})")
        assert kinds(captured, monkeypatch, binary=True) == {"b"}
        texts, sent = (rows(chunks(captured, binary=binary)) for binary in (False, True))
        assert sent == texts
        assert [row for *_others, row in sent] == [
            shown([*row.values()]) for row in captured.snapshot("things")
        ]
        captured.close()
