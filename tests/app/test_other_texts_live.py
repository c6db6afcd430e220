"""What gives the values of earlier rows another text: the tables are read again by themselves."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from mirrorlake import root
from mirrorlake.capture.backfill.backfills import BACKFILL_ENDED
from mirrorlake.capture.backfill.jobs import (
    BackfillJob,
    BackfillJobState,
    BackfillRecords,
    BackfillRequest,
)
from mirrorlake.capture.records.names import KNOWN
from mirrorlake.capture.records.records import Records
from tests.app.evolving_database import EvolvingDatabase
from tests.conformance.scene import until
from tests.profiles import some

pytestmark = pytest.mark.postgres

TYPES = (
    "create type mood as enum ('sad', 'ok')",
    "create type moods as range (subtype = mood, multirange_type_name = many_moods)",
    "create type pair as (a int, b text, m mood)",
    "create domain checked as pair check ((value).a > 0)",
    "create type nested as (n int, p pair)",
    "create type deep as (d checked[], r moods)",
    "create table kinds (a int primary key, b text, m mood)",
)
PAIR = "row({n}, 'x', 'sad')"
COLUMNS = {
    "itself": ("pair", f"{PAIR}::pair"),
    "array": ("pair[]", f"array[{PAIR}::pair, null]"),
    "domain": ("checked", f"{PAIR}::pair"),
    "nested": ("nested", f"row(1, {PAIR}::pair)::nested"),
    "array of nested": ("nested[]", f"array[row(1, {PAIR}::pair)::nested]"),
    "nested arrays of a domain": ("deep", f"row(array[{PAIR}::pair::checked], '[sad,ok]')::deep"),
    "row type": ("kinds", f"{PAIR}::kinds"),
    "array of row types": ("kinds[]", f"array[{PAIR}::kinds]"),
}
"""Types of a column, and a value of each."""
ENUMS = {
    **COLUMNS,
    "range": ("moods", "'[sad,ok)'::moods"),
    "array of ranges": ("moods[]", "array['[sad,ok)'::moods]"),
    "multirange": ("many_moods", "'{{[sad,ok)}}'::many_moods"),
}
ALTERED = {
    "added": "add attribute z int",
    "dropped": "drop attribute b",
    "replaced": "drop attribute b, add attribute b text",
}
LATER = "update pears set n = n + 10 where id in (1, 5); insert into pears (id) values (%s)"


def inserted(value: str, *numbers: int) -> str:
    rows = (f"({n}, {n}, {value.format(n=n)})" for n in numbers)
    return f"insert into pears values {', '.join(rows)}"


def begin(evolving: EvolvingDatabase, kind: str, value: str) -> None:
    evolving.begin(
        *TYPES,
        f"create table pears (id int primary key, n int, v {kind})",
        inserted(value, 1, 2, 3, 4),
        "create table log (id int primary key)",
    )
    evolving.capture()
    assert not evolving.read_again()


def read_again(evolving: EvolvingDatabase) -> list[BackfillRequest]:
    return [request for request in evolving.read_again() if request.table == "public.pears"]


def go_through(evolving: EvolvingDatabase, value: str, change: str, *, each: bool) -> None:
    """It is changed between writes; then processes begin that find nothing new."""
    with capture_logs() as logs:
        go(evolving, value, change, each=each)
    assert reads(logs) == 1


def reads(logs: Sequence[Mapping[str, Any]]) -> int:
    """How often the table was read again."""
    ended = (log for log in logs if log["event"] == BACKFILL_ENDED)
    return sum(log["table"] == "public.pears" for log in ended)


def go(evolving: EvolvingDatabase, value: str, change: str, *, each: bool) -> None:
    before = f"{inserted(value, 5)}; delete from pears where id = 3; update pears set v = null "
    evolving.live(
        [
            f"{before} where id = 4",
            change,
            LATER % 6,
            "update pears set v = (select v from pears where id = 1) where id = 2",
            "delete from pears where id = 6; insert into log values (1)",
        ],
        each=each,
    )
    evolving.capture()
    (request,) = read_again(evolving)
    assert "the log does not contain that for older rows" in request.reason
    evolving.run(LATER % 7)
    evolving.capture()
    evolving.capture()
    evolving.apply()
    assert read_again(evolving) == [request]


def compared(value: Any) -> Any:
    """What equals for an array of the mirror and its text in the source."""
    return tuple(json.loads(value)) if isinstance(value, str) and value[:1] == "[" else value


def check(evolving: EvolvingDatabase, kind: str) -> None:
    if kind.endswith("[]"):
        evolving.check("pears", compared, columns="id, n, array_to_json(v::text[])::text v")
    else:
        evolving.check("pears")


def alternating(first: Any, second: Any) -> list[tuple[str, str, bool]]:
    both = itertools.product(first, second)
    return [(one, other, bool(number % 2)) for number, (one, other) in enumerate(both)]


@pytest.mark.full
@pytest.mark.parametrize(("of", "how", "each"), some(alternating(COLUMNS, ALTERED), 4))
def test_a_table_is_read_again_when_a_composite_type_is_altered(
    evolving: EvolvingDatabase, of: str, how: str, *, each: bool
) -> None:
    kind, value = COLUMNS[of]
    begin(evolving, kind, value)
    change = f"alter type pair {ALTERED[how]}"
    if "row type" in of:
        change = f"alter table kinds {ALTERED[how].replace('attribute', 'column')}"
    go_through(evolving, value, change, each=each)
    check(evolving, kind)


@pytest.mark.parametrize(
    ("of", "each"), some([(of, bool(number % 2)) for number, of in enumerate(ENUMS)])
)
def test_a_table_is_read_again_when_a_value_is_renamed_within_its_types(
    evolving: EvolvingDatabase, of: str, *, each: bool
) -> None:
    kind, value = ENUMS[of]
    begin(evolving, kind, value)
    go_through(evolving, value, "alter type mood rename value 'sad' to 'blue'", each=each)
    check(evolving, kind)
    assert "value 'sad' of enum type mood was renamed" in read_again(evolving)[0].reason


@pytest.mark.full
@pytest.mark.parametrize("change", ["add attribute z int", "drop attribute b"])
@pytest.mark.parametrize("identity", ["add primary key (v)", "replica identity full"])
def test_rows_that_are_found_by_a_composite_are_read_again(
    evolving: EvolvingDatabase, identity: str, change: str
) -> None:
    rows = f"insert into pears select {PAIR.format(n='n')}::pair, n from generate_series(1, 5) n"
    evolving.begin(*TYPES, "create table pears (v pair, n int)", f"alter table pears {identity}")
    evolving.run(rows)
    evolving.capture()
    evolving.live(
        [
            "update pears set n = n + 10 where n = 1; delete from pears where n = 5",
            f"alter type pair {change}",
            "update pears set n = n + 20 where n in (11, 2); delete from pears where n = 3",
            "update pears set v.a = 9 where n = 4",
        ],
        each=True,
    )
    evolving.capture()
    evolving.apply()
    (request,) = read_again(evolving)
    assert "composite type pair was changed" in request.reason
    evolving.check("pears")


WRITTEN: dict[str, tuple[str, str, str]] = {
    "cidr to inet": ("cidr", "inet", "'10.0.0.{n}/32'"),
    "a domain to another type": ("net", "inet", "'10.0.0.{n}'"),
    "to a domain over another type": ("cidr", "host", "'10.0.0.{n}'"),
    "by way of a number": ("regtype", "regproc using v::oid::regproc", "'int4'"),
    "rewritten too": ("text", "uuid using v::uuid", "'{n}0000000-0000-0000-0000-000000000000'"),
}
NET = ("create domain net as cidr", "create domain host as inet")


@pytest.mark.parametrize(
    ("change", "each"), some([(name, bool(n % 2)) for n, name in enumerate(WRITTEN)], 2)
)
def test_a_table_is_read_again_when_another_type_writes_the_same_bytes(
    evolving: EvolvingDatabase, change: str, *, each: bool
) -> None:
    kind, other, value = WRITTEN[change]
    evolving.begin(*NET, f"create table pears (id int primary key, n int, v {kind})")
    evolving.run(inserted(value, 1, 2, 3, 4))
    evolving.capture()
    changes = [
        f"{inserted(value, 5)}; delete from pears where id = 3",
        f"alter table pears alter v type {other}",
        LATER % 6,
        "update pears set v = (select v from pears where id = 1) where id = 2",
    ]
    with capture_logs() as logs:
        evolving.live(changes, each=each)
    assert reads(logs) == 1
    (request,) = evolving.read_again()
    assert "column v" in request.reason
    evolving.run(LATER % 7)
    evolving.capture()
    evolving.apply()
    assert evolving.read_again() == [request]
    evolving.check("pears", str)


@pytest.mark.full
@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("identity", ["add primary key (v)", "replica identity full"])
def test_rows_that_are_found_by_what_is_written_in_another_way_are_read_again(
    evolving: EvolvingDatabase, identity: str, *, each: bool
) -> None:
    evolving.begin("create table pears (v cidr, n int)", f"alter table pears {identity}")
    evolving.run("insert into pears select ('10.0.0.' || n)::cidr, n from generate_series(1, 5) n")
    evolving.capture()
    evolving.live(
        [
            "update pears set n = n + 10 where n = 1; delete from pears where n = 5",
            "alter table pears alter v type inet",
            "update pears set n = n + 20 where n in (11, 2); delete from pears where n = 3",
            "insert into pears values ('10.0.0.3', 3)",
            "update pears set v = '10.0.0.9' where n = 4",
        ],
        each=each,
    )
    assert len(evolving.read_again()) == 1
    evolving.check("pears", str)


def test_a_quiet_table_is_read_again_once_when_another_type_writes_the_same_bytes(
    evolving: EvolvingDatabase,
) -> None:
    evolving.begin("create table pears (id int primary key, v cidr)")
    evolving.run("insert into pears values (1, '10.0.0.1')")
    evolving.capture()
    evolving.run("alter table pears alter v type inet")
    for _ in range(2):
        evolving.capture()
        evolving.apply()
        assert len(evolving.read_again()) == 1
    evolving.check("pears", str)


@pytest.mark.full
def test_a_column_that_is_added_and_written_in_another_way_at_once_is_read_again(
    evolving: EvolvingDatabase,
) -> None:
    evolving.begin("create table pears (id int primary key)", "insert into pears values (1)")
    evolving.run(
        "alter table pears add v cidr; insert into pears values (2, '10.0.0.2')",
        "alter table pears alter v type inet",
        "insert into pears values (3, '10.0.0.3')",
    )
    evolving.capture()
    evolving.apply()
    evolving.check("pears", str)


ALIKE = (
    "alter type pair rename attribute b to c",
    "alter type pair rename to couple",
    "alter type mood add value 'new'",
    "alter type mood rename to humour",
    "alter table pears alter a type varchar(20)",
    "alter table pears alter a type text",
    "alter table pears alter a type varchar",
    "alter table pears alter a type bpchar",
    "alter table pears alter b type varbit",
    "alter table pears alter c type numeric",
    "alter table pears alter d type text",
    "alter table pears alter e type cidr",
    "alter domain net add check (value is not null) not valid",
    "alter table pears alter n type number",
    "set timezone = 'UTC'; alter table pears alter t type timestamptz",
    "alter table pears alter i type interval",
)


@pytest.mark.full
def test_a_table_is_not_read_again_where_values_are_written_alike(
    evolving: EvolvingDatabase,
) -> None:
    evolving.begin(
        *TYPES,
        *NET,
        "create domain number as int",
        "create domain word as text",
        """create table pears (id int primary key, n int, v pair, a varchar(10), b bit(3),
        c numeric(50, 2), d word, e net, t timestamp, i interval(3), r moods)""",
        f"insert into pears values (1, 1, {PAIR.format(n=1)}, 'a ', '101', 1, 'b', '10.0.0.1', "
        "'2026-01-01', '1.5 s', '[sad,ok]')",
    )
    for number, change in enumerate(ALIKE, 100):
        evolving.run(change)
        evolving.capture()
        evolving.run(f"insert into pears (id, e) values ({number}, '10.0.0.2')")
        assert (change, evolving.read_again()) == (change, [])
    evolving.capture()
    evolving.apply()
    assert evolving.read_again() == []
    evolving.check("pears", str, columns="id, n, v, a, b, c, d, e, r")


@pytest.mark.full
def test_a_quiet_table_is_read_again_while_capture_runs(evolving: EvolvingDatabase) -> None:
    """It is described to the stream by a message."""
    evolving.begin("create table pears (id int primary key, v cidr)")
    evolving.run("insert into pears values (1, '10.0.0.1')")
    evolving.capture()
    with evolving.running():
        evolving.run("alter table pears alter v type inet")
        until(lambda: bool(ended(evolving)))
    evolving.apply()
    assert len(evolving.read_again()) == 1
    evolving.check("pears", str)


def ended(evolving: EvolvingDatabase) -> list[BackfillJob]:
    jobs = BackfillRecords(Records(evolving.store, root.LANDING)).jobs()
    return [job for job in jobs if job.state is BackfillJobState.COMPLETED]


ALL_CHANGES = "insert, update, delete, truncate"


def forget_later_facts(evolving: EvolvingDatabase) -> None:
    """Leave the records as an earlier release wrote them."""
    records = Records(evolving.store, root.LANDING)
    noted = {
        name: {
            key: replace(each, type=0)
            for key, each in attached.items()
            if not key.startswith(("composite ", "value "))
        }
        for name, attached in records.attached().items()
    }
    records.write_attached(noted)
    path = f"{records.folder}/{KNOWN}"
    known = json.loads(evolving.store.read(path))
    for facts in known["tables"].values():
        assert facts.pop("texts")
        assert facts.pop("publications")
    evolving.store.replace(path, json.dumps(known).encode())


@pytest.mark.full
def test_what_an_earlier_release_did_not_note_counts_as_unchanged(
    evolving: EvolvingDatabase,
) -> None:
    evolving.begin(*TYPES, "create table pears (id int primary key, v nested, a cidr)")
    value = f"row(1, {PAIR.format(n=1)}::pair)::nested"
    evolving.run(f"insert into pears values (1, {value}, '10.0.0.1')")
    evolving.capture()
    forget_later_facts(evolving)
    evolving.capture()
    evolving.run(f"insert into pears values (2, {value}, '10.0.0.2')")
    evolving.capture()
    assert evolving.read_again() == []
    assert Records(evolving.store, root.LANDING).without_effect() == {}
    with capture_logs() as logs:
        evolving.run("alter type pair add attribute z int")
        evolving.capture()
        evolving.run("alter table pears alter a type inet")
        evolving.capture()
        evolving.run(f"alter publication {evolving.made} set (publish = 'insert')")
        evolving.run("delete from pears where id = 1")
        evolving.run(f"alter publication {evolving.made} set (publish = '{ALL_CHANGES}')")
        evolving.capture()
    assert reads(logs) == 3
    evolving.apply()
    evolving.check("pears", str)


DEFAULTS = {
    "box": "'((0,0),(1,1))'",
    "box[]": "'{(1,1),(0,0);(3,3),(2,2)}'",
    "point": "'(1,2)'",
    "text": """E'a, "b" \\\\ {c} '""",
    "varchar": "'{\"a\",b}'",
    "text[]": "array['a,b', '', null]",
    "pair": "row(1, 'a, \"b\"', 'ok')",
    "char(3)": "''",
    "name": "'null'",
}


@pytest.mark.full
def test_earlier_rows_get_a_default_of_any_type_whole(evolving: EvolvingDatabase) -> None:
    evolving.begin(
        *TYPES, "create table pears (id int primary key)", "insert into pears values (1)"
    )
    columns = [f"add c{n} {kind} default {DEFAULTS[kind]}" for n, kind in enumerate(DEFAULTS)]
    evolving.live(
        [
            "insert into pears values (2)",
            f"alter table pears {', '.join(columns)}",
            "insert into pears (id) values (3)",
        ],
        each=True,
    )
    assert evolving.read_again() == []
    rows = {row.pop("id"): row for row in evolving.mirrored("pears")}
    assert rows[1] == rows[2] == rows[3]
    simple = (f"format('%s', c{n}) c{n}" for n, kind in enumerate(DEFAULTS) if kind != "text[]")
    evolving.check("pears", columns=", ".join(["id", *simple]))


NAMED = (
    "create schema other",
    "create table other.things (id int)",
    "create table pears (id int primary key, v regclass, more regtype[])",
    "create table log (id int primary key)",
    """insert into pears select n, 'other.things', '{other.things,int4}'
    from generate_series(1, 3) n""",
)


@pytest.mark.parametrize("number", some([1, 0, 2]))
def test_names_are_the_same_text_whatever_the_path_of_the_database_is(
    evolving: EvolvingDatabase, number: int
) -> None:
    """number: of what happens before the load."""
    alter = f"alter database {evolving.database.name} set search_path"
    changes = [
        f"{alter} = other",
        "insert into pears values (4, 'other.things', '{other.things}')",
        "update pears set id = 5 where id = 2",
        f"{alter} = pg_catalog",
        "alter table pears add d regclass default 'other.things'",
        "insert into public.log values (1)",
        "update pears set id = 6 where id = 1",
    ]
    changes = [change.replace(" pears ", " public.pears ") for change in changes]
    evolving.begin(*NAMED, *changes[:number])
    evolving.live(changes[number:], each=True)
    found = evolving.mirrored("pears")
    assert {row["id"] for row in found} == {3, 4, 5, 6}
    assert {row["v"] for row in found} == {row["d"] for row in found} == {"other.things"}
    assert {json.loads(row["more"])[0] for row in found} == {"other.things"}
    assert evolving.read_again() == []
