"""Types of columns change at a live source, and values with them as the log does not tell."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import pytest

from mirrorlake.model.crash_points import CrashPoint
from tests.app.evolving_database import Dying, EvolvingDatabase
from tests.doubles.memory_store import Crash
from tests.profiles import some

pytestmark = pytest.mark.postgres

TABLES = (
    "create table pears (id int primary key, note text, size int, price numeric(9, 2))",
    "insert into pears values (1, 'a', 10, 1.5), (2, 'b', null, 2.25), (3, 'c', 30, 0)",
    "insert into pears (id, size) values (4, 40)",
    "create table log (id int primary key)",
)
BEFORE = "insert into pears (id) values (5); delete from pears where id = 3"
AFTER = """
    update pears set price = 7 where id::text in ('1', 'k1');
    insert into pears (id) values ('7'); insert into log select count(*) from log
"""
AT_ONCE = """
    update pears set size = 1 where id = 2;
    alter table pears alter size type text using size || 'x';
    update pears set size = 'y' where id = 4
"""
EXCHANGE = """
    alter table pears rename note to other; alter table pears rename size to note;
    alter table pears rename other to size
"""

SEVERAL = """
    alter table pears alter note type int using length(note), alter size type text,
    alter price type numeric(12, 2)
"""

CHANGES: dict[str, Sequence[str]] = {
    "by an expression": ["alter table pears alter note type int using length(note) + id"],
    "wider": ["alter table pears alter size type bigint"],
    "wider by an expression": ["alter table pears alter size type bigint using size * 2"],
    "to text": ["alter table pears alter size type text"],
    "in one transaction with rows": [AT_ONCE],
    "and back": [
        "alter table pears alter note type int using length(note)",
        "insert into pears (id, note) values (8, 8)",
        "alter table pears alter note type text using note || 'x'",
    ],
    "the same, by an expression": ["alter table pears alter size type int using size * 2"],
    "fewer digits": ["alter table pears alter price type numeric(9, 1)"],
    "more digits": ["alter table pears alter price type numeric(12, 4)"],
    "renamed too": [
        "alter table pears rename note to remark",
        "alter table pears alter remark type int using length(remark)",
    ],
    "of a name used again": ["alter table pears drop note, add note int default 8"],
    "several": [SEVERAL],
    "a date to a timestamp": [
        "alter table pears add d date default '2020-01-02'",
        "insert into pears (id, d) values (8, null), (9, '2000-02-29')",
        "alter table pears alter d type timestamp",
    ],
}
TOLD = {
    "more digits": ["alter table pears alter price type numeric(12, 2)"],
    "of names that are exchanged": [EXCHANGE],
}
"""Changes after which nothing is to be read again."""


def in_utc(value: Any) -> Any:
    """A timestamp without a zone is read as UTC."""
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "each"),
    some([(name, bool(number % 2)) for number, name in enumerate(CHANGES)], 4),
)
def test_a_table_is_equal_after_types_have_changed(
    evolving: EvolvingDatabase, name: str, *, each: bool
) -> None:
    evolving.begin(*TABLES)
    evolving.live([BEFORE, *CHANGES[name], AFTER], each=each)
    for table in ("pears", "log"):
        evolving.check(table, in_utc)
    assert evolving.read_again()
    assert not [name for name in evolving.columns("pears") if "_before_" in name]
    evolving.run("update pears set price = 8")
    evolving.capture()
    evolving.apply()
    evolving.check("pears", in_utc)


@pytest.mark.full
@pytest.mark.parametrize("statements", TOLD.values(), ids=TOLD)
def test_a_table_is_not_read_again_where_its_values_are_told(
    evolving: EvolvingDatabase, statements: Sequence[str]
) -> None:
    evolving.begin(*TABLES)
    evolving.live([BEFORE, *statements, AFTER], each=True)
    evolving.check("pears")
    assert not evolving.read_again()


def test_a_quiet_table_is_read_again_when_its_values_were_rewritten(
    evolving: EvolvingDatabase,
) -> None:
    evolving.begin(*TABLES)
    evolving.run("insert into pears (id) values (5)")
    evolving.capture()
    evolving.live(CHANGES["the same, by an expression"], each=False)
    evolving.check("pears")
    assert len(evolving.read_again()) == 1
    evolving.live(["vacuum full pears"], each=False)
    assert len(evolving.read_again()) == 1


DEATHS = [
    CrashPoint.BACKFILL_REQUIRED,
    CrashPoint.CHANGES_PUBLISHED_ONE,
    CrashPoint.CUT_WRITTEN,
    CrashPoint.ACKNOWLEDGED,
    CrashPoint.BACKFILL_PUBLISHED,
    CrashPoint.BACKFILL_RECORDED,
]
APPLYING = [
    CrashPoint.COLUMNS_ADDED,
    CrashPoint.COLUMNS_WRITTEN,
    CrashPoint.COLUMNS_ALTERED,
    CrashPoint.COMMITTED,
]


@pytest.mark.full
@pytest.mark.parametrize("point", some(DEATHS, 1))
def test_types_change_once_when_capture_dies(evolving: EvolvingDatabase, point: CrashPoint) -> None:
    evolving.begin(*TABLES)
    dying = Dying(point)
    with suppress(Crash), evolving.capturing(dying) as capture:
        for statement in [BEFORE, *CHANGES["and back"], *CHANGES["wider"], AFTER]:
            evolving.run(statement)
            capture.once()
    assert dying.left == 0
    evolving.run("insert into pears (id) values (100)", "insert into log values (100)")
    evolving.capture()
    evolving.apply()
    for table in ("pears", "log"):
        evolving.check(table)


@pytest.mark.full
@pytest.mark.parametrize(("point", "times"), some([(p, n) for p in APPLYING for n in (1, 2)], 1))
def test_types_change_once_when_apply_dies(
    evolving: EvolvingDatabase, point: CrashPoint, times: int
) -> None:
    evolving.begin(*TABLES)
    evolving.live([BEFORE, *CHANGES["several"]], each=False)
    evolving.run(*CHANGES["fewer digits"], AFTER)
    evolving.capture()
    evolving.run("alter table pears alter size type int using size::int", AFTER.replace("7", "9"))
    evolving.capture()
    assert evolving.apply(Dying(point, times))
    evolving.apply()
    evolving.check("pears")
