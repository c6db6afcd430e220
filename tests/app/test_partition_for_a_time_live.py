"""Mirrored tables that are partitions of another one between two looks: changed under its name."""

from __future__ import annotations

import pytest

from tests.app.evolving_database import EvolvingDatabase
from tests.profiles import some

pytestmark = pytest.mark.postgres

KEY = "primary key (id, d)"
ROOT = (
    f"create table p (id int, d int, v text, {KEY}) partition by range (d)",
    "create table p1 partition of p for values from (0) to (10)",
    "insert into p values (1, 1, 'a'), (2, 2, 'a')",
)
LOOSE = f"create table s (id int not null, d int not null, v text, {KEY})"
SPLIT = (
    f"{LOOSE} partition by list (id)",
    "create table s1 partition of s for values in (2, 20, 22, 24)",
)
FILLED = "insert into s values (20, 20, 's'), (22, 22, 's')"
MAKE = "create table s partition of p for values from (20) to (30)"
ATTACH = "alter table p attach partition s for values from (20) to (30)"
DETACH = "alter table p detach partition s"
CHANGES = (
    "insert into p values (24, 24, 'n')",
    "update p set v = 'u' where id = 22",
    "update p set d = 25 where id = 24",
    "update p set d = 21 where id = 2",
    "delete from p where id = 20",
)
LATER = ("update p set v = 'later' where id = 1", "update s set v = 'later' where id = 22")


def reads(evolving: EvolvingDatabase) -> list[tuple[str, str]]:
    """The tables that were read again, and why."""
    return sorted((request.table, request.reason) for request in evolving.read_again())


def notices(evolving: EvolvingDatabase) -> bool:
    """Whether the server notices attachments; otherwise tables are read once more."""
    return evolving.database.sql.info.server_version >= 150_000


def equal(evolving: EvolvingDatabase) -> None:
    """Both tables equal, before further changes and after them."""
    for changes in ((), LATER):
        evolving.run(*changes)
        evolving.capture()
        evolving.apply()
        for table in ("p", "s"):
            evolving.check(table)


@pytest.mark.parametrize("made", [(LOOSE, FILLED), (*SPLIT, FILLED)])
@pytest.mark.parametrize("at_once", some([True, False]))
def test_changes_that_a_table_got_as_a_partition_are_read(
    evolving: EvolvingDatabase, made: tuple[str, ...], at_once: bool
) -> None:
    """In one transaction, or in several before capture comes to them."""
    evolving.begin(*ROOT, *made)
    statements = [ATTACH, *CHANGES, DETACH]
    evolving.run(*(["; ".join(statements)] if at_once else statements))
    equal(evolving)
    reasons = dict(reads(evolving))
    assert reasons.keys() == {"public.p", "public.s"}
    if notices(evolving):
        assert len(reads(evolving)) == 2
        assert "a partition was detached or dropped" in reasons["public.p"]
        assert "it may have been a partition of another table for a time" in reasons["public.s"]


def test_changes_are_read_while_capture_runs(evolving: EvolvingDatabase) -> None:
    evolving.begin(*ROOT, LOOSE, FILLED)
    with evolving.capturing() as capture:
        evolving.run("; ".join([ATTACH, *CHANGES, DETACH]))
        capture.once()
        evolving.run("insert into s values (26, 26, 'own')")
        capture.once()
    evolving.apply()
    equal(evolving)


def test_each_step_is_seen_by_itself(evolving: EvolvingDatabase) -> None:
    evolving.begin(*ROOT, LOOSE, FILLED)
    evolving.live([ATTACH, *CHANGES, DETACH, ATTACH, DETACH], each=True)
    equal(evolving)


@pytest.mark.parametrize("detach", some([DETACH, f"{DETACH} concurrently"]))
@pytest.mark.parametrize("made", [(MAKE,), (LOOSE, ATTACH)])
def test_a_partition_that_is_a_table_of_its_own_before_capture_knows_it_leaves_no_rows(
    evolving: EvolvingDatabase, made: tuple[str, ...], detach: str
) -> None:
    evolving.begin(*ROOT)
    evolving.run(*made, *CHANGES, "insert into p values (22, 22, 'n')", detach)
    equal(evolving)
    if notices(evolving):
        assert [table for table, _reason in reads(evolving)] == ["public.p"]


def test_rows_that_were_truncated_or_inserted_below_are_read(evolving: EvolvingDatabase) -> None:
    """The stream has no row of it under any name, or of a partition that is new itself."""
    evolving.begin(*ROOT, *SPLIT, FILLED)
    made = "create table s2 partition of s default"
    evolving.run(ATTACH, "truncate p", made, "insert into p values (27, 27, 'n')", DETACH)
    evolving.run("insert into p values (1, 1, 'b')", "insert into s values (22, 22, 'own')")
    equal(evolving)


def test_no_rows_in_between_leave_the_root_as_it_is(evolving: EvolvingDatabase) -> None:
    evolving.begin(*ROOT, LOOSE, FILLED)
    evolving.run(ATTACH, DETACH)
    equal(evolving)
    assert {table for table, _reason in reads(evolving)} == {"public.s"}


def test_other_changes_of_a_table_do_not_count(evolving: EvolvingDatabase) -> None:
    """Of all of its columns, too, and of tables that are described one behind the other."""
    evolving.begin(*ROOT, LOOSE, FILLED, "create table t (id int primary key)")
    evolving.run(
        "alter table s alter v set default 'x', alter d set default 1, alter id set default 1",
        "alter table t alter id set default 1",
    )
    evolving.capture()
    evolving.run(
        "alter table s replica identity full",
        "insert into s values (26, 26, 'x'); insert into t values (2)",
        "insert into p values (3, 3, 'b'); insert into s values (27, 27, 'x')",
    )
    evolving.capture()
    evolving.run(
        "truncate p, s, t",
        "insert into p values (1, 1, 'c'); insert into t values (1)",
        "insert into s values (22, 22, 'x')",
    )
    equal(evolving)
    assert not evolving.read_again()
