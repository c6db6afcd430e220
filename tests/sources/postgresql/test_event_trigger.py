"""The event trigger: no update of a table that loses its key is rejected to its users."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from mirrorlake.sources.base import CheckResult, CheckSeverity
from mirrorlake.sources.postgresql import connect
from mirrorlake.sources.postgresql.publishing import event_trigger
from mirrorlake.sources.postgresql.publishing.publication import loses_additions
from mirrorlake.sources.postgresql.settings import TriggerPolicy
from mirrorlake.sources.postgresql.source import PostgresSource
from tests.conformance.scene import until
from tests.conftest import Database
from tests.sources.postgresql.captured import Captured

pytestmark = pytest.mark.postgres

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "protect-the-source.md"
TABLES = (
    "create table apples (id int primary key, note text)",
    'create table "Red ""pears" (id int primary key, note text)',
    "create table parts (id int primary key) partition by range (id)",
    "create table part1 partition of parts for values from (0) to (100)",
    "insert into apples values (1, 'x'), (2, 'y')",
    """insert into "Red ""pears" values (1, 'x')""",
    "insert into parts values (1), (3)",
)


@pytest.fixture
def anywhere(any_captured: Captured) -> Captured:
    """A mirror with the trigger, on each version of PostgreSQL."""
    any_captured.settings = replace(any_captured.settings, event_trigger=TriggerPolicy.ALWAYS)
    return any_captured


@pytest.fixture
def guarded(captured: Captured) -> Captured:
    """A mirror with the trigger."""
    captured.settings = replace(captured.settings, event_trigger=TriggerPolicy.ALWAYS)
    return captured


def triggers(captured: Captured) -> list[str]:
    query = "select evtname from pg_event_trigger order by 1"
    return [name for (name,) in captured.database.sql.execute(query)]


def published(captured: Captured, publication: str) -> dict[str, str | None]:
    """The condition of each table of a publication."""
    query = (
        "select c.relname, pg_get_expr(r.prqual, r.prrelid) from pg_publication p "
        "join pg_publication_rel r on r.prpubid = p.oid join pg_class c on c.oid = r.prrelid "
        "where p.pubname = %s"
    )
    return dict(captured.database.sql.execute(query, [publication]).fetchall())


def test_no_update_is_rejected_in_the_transaction_that_drops_the_key(anywhere: Captured) -> None:
    captured = anywhere
    captured.begin(*TABLES)
    captured.run("alter table apples drop constraint apples_pkey; update apples set note = 'z'")
    captured.run('alter table "Red ""pears" drop column id cascade', 'delete from "Red ""pears"')
    captured.run("alter table part1 replica identity nothing", "update parts set id = 10 - id")
    found = captured.source().watch(captured.tables)
    if not loses_additions(captured.database.sql.info.server_version):
        assert [f for f in found if f.severity is CheckSeverity.ERROR] == []


def test_a_table_is_moved_with_its_row_condition(guarded: Captured) -> None:
    guarded.select("public.apples", rows={"public.apples": "id > 1"})
    name = guarded.settings.publication
    guarded.begin(*TABLES)
    guarded.run("alter table apples drop constraint apples_pkey; update apples set note = 'z'")
    assert published(guarded, name) == {}
    assert published(guarded, f"{name}_append") == {"apples": "(id > 1)"}


def test_a_table_whose_key_lacks_a_column_of_its_condition_is_taken_out(guarded: Captured) -> None:
    guarded.select("public.apples", rows={"public.apples": "id > 1"})
    name = guarded.settings.publication
    guarded.begin(*TABLES)
    guarded.run(
        "alter table apples alter note set not null, drop constraint apples_pkey, "
        "add primary key (note); update apples set note = note || '!'"
    )
    assert published(guarded, name) == published(guarded, f"{name}_append") == {}


def test_a_table_that_cannot_be_moved_fails_no_statement(guarded: Captured) -> None:
    guarded.begin(*TABLES)
    said: list[str] = []
    guarded.database.sql.add_notice_handler(
        lambda notice: said.append(notice.message_primary or "")
    )
    guarded.run(f"drop publication {guarded.settings.publication}_append")
    guarded.run("alter table apples drop constraint apples_pkey")
    assert any("mirrorlake: " in one and "_append" in one for one in said)
    assert "apples" in published(guarded, guarded.settings.publication)


def test_it_follows_the_setting(guarded: Captured) -> None:
    made = guarded.begin(*TABLES)
    name = f"{guarded.settings.publication}_keys"
    assert triggers(guarded) == [name]
    assert guarded.source(event_trigger=TriggerPolicy.NEVER).watch(guarded.tables)
    assert triggers(guarded) == []
    assert guarded.source().watch(guarded.tables)
    assert triggers(guarded) == [name]
    guarded.run(f"drop event trigger {name}")
    assert guarded.source().watch(guarded.tables)
    assert triggers(guarded) == [name]
    assert f"event trigger {name}" in guarded.source().objects.detach(made)
    assert triggers(guarded) == []
    functions = guarded.database.sql.execute("select from pg_proc where proname = %s", [name])
    assert functions.fetchall() == []


def test_what_others_made_under_its_name_stays(guarded: Captured) -> None:
    name = f"{guarded.settings.publication}_keys"
    guarded.run(
        f"create function public.{name}() returns int language sql as 'select 1'",
        f"comment on function public.{name}() is 'ours'",
    )
    with closing(connect.connect(guarded.settings.url)) as connection:
        assert not event_trigger.drop(connection, guarded.settings)
    guarded.run(f"select public.{name}()")


def test_who_may_not_create_it_is_told(guarded: Captured, database: Database) -> None:
    guarded.begin(*TABLES)
    user = f"reader_{database.name}"
    guarded.run(f"create role {user} login password '{user}' replication")
    guarded.run(f"drop event trigger {guarded.settings.publication}_keys")
    source = guarded.source(url=database.url_as(user))
    (found,) = (one for one in source.check() if one.check == "event_trigger")
    assert found.severity is CheckSeverity.WARNING
    assert "cannot be made" in found.message
    assert "source.event_trigger" in found.remedy
    assert [one for one in source.watch(guarded.tables) if one.check == "event_trigger"]
    assert triggers(guarded) == []
    guarded.close()
    guarded.run(f"drop role {user}")


def test_it_waits_for_no_lock(guarded: Captured) -> None:
    """A table that somebody alters is moved when it is free."""
    guarded.begin(*TABLES)
    guarded.run("alter table apples drop constraint apples_pkey")
    guarded.run(f"alter publication {guarded.settings.publication} add table apples")
    with psycopg.connect(guarded.database.url) as other:
        other.execute("lock table apples in access exclusive mode")
        guarded.run('alter table "Red ""pears" drop constraint "Red ""pears_pkey"')
        guarded.run("""update "Red ""pears" set note = 'z'""")


def test_the_page_has_what_is_made(guarded: Captured) -> None:
    settings = replace(guarded.settings, publication="mirrorlake_shop")
    assert event_trigger.script(settings, 180_000) in PAGE.read_text()


def test_what_a_user_defines_does_not_run_as_its_owner(guarded: Captured) -> None:
    """Temporary tables would be found before those of the catalog."""
    guarded.begin(*TABLES)
    user = f"user_{guarded.database.name}"
    guarded.run(f"create role {user} login password '{user}'")
    with psycopg.connect(guarded.database.url_as(user), autocommit=True) as other:
        other.execute("create temp table mine (a int)")
        other.execute(
            "create function pg_temp.run() returns boolean language plpgsql as "
            f"$$ begin execute 'alter role {user} superuser'; return true; end $$"
        )
        other.execute(
            "create temp view pg_publication as "
            "select p.* from pg_catalog.pg_publication p where pg_temp.run()"
        )
        other.execute("create temp table pg_index as select * from pg_catalog.pg_index limit 0")
        other.execute("alter table mine add b int")
    (is_superuser,) = guarded.database.sql.execute(
        "select rolsuper from pg_roles where rolname = %s", [user]
    ).fetchone() or (None,)
    assert is_superuser is False
    assert "apples" in published(guarded, guarded.settings.publication)
    # A session drops its temporary tables after its client has gone.
    left = f"select from pg_stat_activity where usename = '{user}'"
    until(lambda: guarded.database.sql.execute(left).fetchone() is None)
    guarded.run(f"drop role {user}")


@pytest.mark.parametrize(
    "statements",
    [
        [
            """create function public.{name}() returns event_trigger language plpgsql
            as $$ begin end $$"""
        ],
        [
            "create function f() returns event_trigger language plpgsql as $$ begin end $$",
            "create event trigger {name} on ddl_command_end execute function f()",
        ],
        ["alter schema public rename to hidden"],
    ],
)
def test_what_is_in_its_way_is_told_and_left(guarded: Captured, statements: list[str]) -> None:
    source = guarded.source(event_trigger=TriggerPolicy.NEVER)
    guarded.run("create schema shop", "create table shop.apples (id int primary key)")
    guarded.select("shop.*")
    guarded.begin()
    guarded.run(f"drop function {guarded.settings.publication}_keys() cascade")
    for statement in statements:
        guarded.run(statement.format(name=f"{guarded.settings.publication}_keys"))
    for findings in (guarded.source().check(), guarded.source().watch(guarded.tables)):
        (found,) = (one for one in findings if one.check == "event_trigger")
        assert found.severity is CheckSeverity.WARNING
    assert [one for one in source.check() if one.check == "event_trigger"] == []


def test_who_may_not_drop_it_is_told_and_detaches_the_rest(
    guarded: Captured, database: Database
) -> None:
    made = guarded.begin(*TABLES)
    name, user = guarded.settings.publication, f"reader_{database.name}"
    guarded.run(f"create role {user} login password '{user}' replication")
    guarded.run(f"alter publication {name} owner to {user}")
    guarded.run(f"alter publication {name}_append owner to {user}")
    source = guarded.source(url=database.url_as(user), event_trigger=TriggerPolicy.NEVER)
    (found,) = (one for one in source.watch([]) if one.check == "event_trigger")
    assert f'`drop function public."{name}_keys"() cascade`' in found.remedy
    removed = source.objects.detach(made)
    assert f"publication {name}" in removed
    assert not [one for one in removed if "event trigger" in one]
    guarded.run("alter table apples drop constraint apples_pkey", found.remedy.split("`")[1])
    assert triggers(guarded) == []
    guarded.close()
    guarded.run(f"drop role {user}")


@pytest.mark.parametrize(
    ("before", "statement"),
    [
        (
            "alter table parts replica identity full; alter table part1 replica identity full",
            "create table part2 partition of parts for values from (100) to (200)",
        ),
        (
            """create schema z; create domain z.number as int; alter table apples drop id;
            alter table apples add id z.number primary key default 1""",
            "drop schema z cascade",
        ),
    ],
)
def test_no_update_is_rejected_whatever_takes_the_key(
    guarded: Captured, before: str, statement: str
) -> None:
    guarded.run(*TABLES, "delete from apples where id = 2", before)
    guarded.begin()
    guarded.run(statement, "insert into parts select 150 where to_regclass('part2') is not null")
    guarded.run("update parts set id = id", "update apples set note = 'z'")


def reader(guarded: Captured, database: Database) -> tuple[str, PostgresSource]:
    """A mirror that owns its publications and is not a superuser."""
    name, user = guarded.settings.publication, f"reader_{database.name}"
    guarded.run(
        f"create role {user} login password '{user}' replication",
        f"grant create on database {database.name} to {user}",
        f"alter table apples owner to {user}",
        f"alter publication {name} owner to {user}",
        f"alter publication {name}_append owner to {user}",
    )
    policy = TriggerPolicy.AUTO
    return user, guarded.source(url=database.url_as(user), event_trigger=policy)


def told(findings: Sequence[CheckResult]) -> list[CheckResult]:
    return [found for found in findings if found.check == "event_trigger"]


def test_by_default_it_is_made_where_that_is_allowed(captured: Captured) -> None:
    captured.settings = replace(captured.settings, event_trigger=TriggerPolicy.AUTO)
    made = captured.begin(*TABLES)
    assert triggers(captured) == [f"{captured.settings.publication}_keys"]
    assert told(captured.source().check()) == []
    captured.source().objects.detach(made)
    assert triggers(captured) == []


def test_one_that_an_administrator_makes_is_recognised(
    captured: Captured, database: Database
) -> None:
    """Capture does not ask for it again: each attempt is an error in the log of the server."""
    captured.select("public.apples")
    captured.begin(*TABLES)
    user, source = reader(captured, database)
    assert told(source.watch(captured.tables)) == []
    (found,) = told(source.check())
    assert found.severity is CheckSeverity.WARNING
    captured.run(found.script)
    assert told(source.check()) == []
    captured.run("alter table apples drop constraint apples_pkey; update apples set note = 'z'")
    assert "apples" in published(captured, f"{captured.settings.publication}_append")
    captured.source(event_trigger=TriggerPolicy.NEVER).watch(captured.tables)
    assert len(triggers(captured)) == 1  # it is not ours
    captured.run(f"alter event trigger {captured.settings.publication}_keys disable")
    (found,) = told(source.check())
    captured.run(found.script)  # drops what is there
    assert told(source.check()) == []
    captured.close()
    captured.run(f"drop owned by {user}", f"drop role {user}")


def test_publications_of_others_get_none(captured: Captured) -> None:
    captured.settings = replace(captured.settings, event_trigger=TriggerPolicy.AUTO)
    name = captured.settings.publication
    captured.run(*TABLES, f"create publication {name} for all tables")
    captured.run(f"create publication {name}_append with (publish = 'insert, truncate')")
    captured.begin()
    assert triggers(captured) == []
    assert told(captured.source().check()) == []


@pytest.mark.full
def test_two_mirrors_of_a_database_have_one_each(guarded: Captured) -> None:
    other = f"{guarded.settings.publication}_2"
    guarded.begin(*TABLES)
    second = guarded.source(publication=other, slot=other)
    established = second.objects.establish(guarded.tables)
    established.snapshot.close()
    assert len(triggers(guarded)) == 2
    guarded.run("alter table apples drop constraint apples_pkey; update apples set note = 'z'")
    second.objects.detach(established.made)
    assert triggers(guarded) == [f"{guarded.settings.publication}_keys"]


@pytest.mark.full
@pytest.mark.parametrize(
    "statement",
    [
        "drop index pears_note; update pears set note = 'z'",
        """set session_replication_role = replica; drop index pears_note;
        update pears set note = 'z'; reset session_replication_role""",
        """create table other partition of parts for values from (100) to (200);
        alter table other replica identity nothing; insert into other values (150);
        update parts set id = id""",
        """create schema shop create table other partition of public.parts
        for values from (100) to (200); insert into parts values (150);
        update parts set id = id""",
    ],
)
def test_no_update_is_rejected_with_an_identity_that_goes(
    guarded: Captured, statement: str
) -> None:
    guarded.run(
        *TABLES,
        "create table pears (note text not null)",
        "create unique index pears_note on pears (note)",
        "alter table pears replica identity using index pears_note",
        "insert into pears values ('x')",
    )
    if "create schema" in statement:
        guarded.run(
            "alter table parts drop constraint parts_pkey",
            "alter table parts replica identity full; alter table part1 replica identity full",
        )
    guarded.begin()
    guarded.run(f"begin; {statement}; commit")


def test_what_fails_in_it_fails_no_statement(guarded: Captured) -> None:
    guarded.begin(*TABLES)
    (text,) = guarded.database.sql.execute(
        "select prosrc from pg_proc where proname = %s", [f"{guarded.settings.publication}_keys"]
    ).fetchone() or ("",)
    broken = text.replace("    for lost in\n", "    perform 1 / 0;\n    for lost in\n")
    assert broken != text
    guarded.run(
        f"create or replace function public.{guarded.settings.publication}_keys() returns "
        f"event_trigger language plpgsql security definer as $x${broken}$x$"
    )
    guarded.run("alter table apples add more int")
