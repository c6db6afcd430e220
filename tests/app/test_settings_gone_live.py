"""Settings for columns, rows and tables that are dropped or renamed after they were loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirrorlake import config, root
from mirrorlake.app.mirror import Mirror
from mirrorlake.errors import PrerequisiteMissing
from tests.app.evolving_database import EvolvingDatabase
from tests.capture.test_event_files import events, project
from tests.conftest import Database
from tests.profiles import some

TABLES = (
    "create table pears (id int primary key, secret text, x int)",
    "create table log (id int primary key)",
)
ROWS = "insert into pears values (1, 'secret', 1), (2, 'secret', 20)"


def goes_on(evolving: EvolvingDatabase, *stopped: str) -> None:
    """The other table is captured still, with capture running and after a restart."""
    for number in (100, 101):
        with evolving.capturing() as capture:
            evolving.run(f"insert into log values ({number})")
            capture.once()
            evolving.run(f"insert into log values ({number + 10})")
            capture.once()
    evolving.apply()
    evolving.check("log", stopped=stopped)


def skip_without_conditions(evolving: EvolvingDatabase) -> None:
    if evolving.database.sql.info.server_version < 150_000:
        pytest.skip("a publication has no conditions for rows")


@pytest.mark.parametrize("chosen", some([["*", "!secret"], ["id", "secret", "x"]]))
def test_a_selected_column_is_dropped(evolving: EvolvingDatabase, chosen: list[str]) -> None:
    evolving.selected_columns = {"public.pears": chosen}
    evolving.begin(*TABLES, ROWS)
    with evolving.capturing() as capture:
        evolving.run("alter table pears drop column secret", "insert into pears values (3, 3)")
        capture.once()
    goes_on(evolving)
    assert evolving.stopped() == {}
    evolving.check("pears", columns="id, x")


def test_a_column_that_is_left_out_is_renamed(evolving: EvolvingDatabase) -> None:
    evolving.selected_columns = {"public.pears": ["*", "!secret"]}
    evolving.begin(*TABLES, ROWS)
    with evolving.capturing() as capture:
        evolving.run("alter table pears rename secret to known", "update pears set x = 3")
        capture.once()
    goes_on(evolving, "public.pears")
    assert evolving.columns("pears") == ["id", "x"]


@pytest.mark.parametrize("name", some(["columns", "rows"]))
@pytest.mark.parametrize("is_running", [True, False])
def test_a_table_of_the_settings_is_renamed(
    evolving: EvolvingDatabase, name: str, *, is_running: bool
) -> None:
    if name == "rows":
        skip_without_conditions(evolving)
        evolving.selected_rows = {"public.pears": "x < 10"}
    else:
        evolving.selected_columns = {"public.pears": ["*", "!secret"]}
    evolving.begin(*TABLES, "alter table pears replica identity full", ROWS)
    changes = ["alter table pears rename to plums", "insert into plums values (3, 'secret', 30)"]
    if is_running:
        with evolving.capturing() as capture:
            evolving.run(*changes)
            capture.once()
    else:
        evolving.run(*changes)
    goes_on(evolving, "public.pears")
    found = evolving.mirrored("pears")
    assert all("secret" not in row if name == "columns" else row["x"] < 10 for row in found)
    assert not (evolving.store.root / root.TABLES / "public" / "plums").exists()
    assert "plums" in evolving.stopped()["public.pears"]


CORRECTED = {"beside": ("pears", "plums"), "instead": ("plums",)}


@pytest.mark.parametrize("name", some(["rows", "columns"]))
@pytest.mark.parametrize("corrected", CORRECTED.values(), ids=CORRECTED)
def test_a_renamed_table_goes_on_when_the_settings_are_corrected(
    evolving: EvolvingDatabase, name: str, corrected: tuple[str, ...]
) -> None:
    def select(*tables: str) -> None:
        if name == "rows":
            evolving.selected_rows = {f"public.{table}": "x < 10" for table in tables}
        else:
            evolving.selected_columns = {f"public.{table}": ["*", "!secret"] for table in tables}

    if name == "rows":
        skip_without_conditions(evolving)
    select("pears")
    evolving.begin(*TABLES, "alter table pears replica identity full", ROWS)
    evolving.run("alter table pears rename to plums", "update plums set x = 2 where id = 1")
    goes_on(evolving, "public.pears")
    evolving.run("delete from plums where id = 1", "insert into plums values (3, 'secret', 3)")
    evolving.capture()
    select(*corrected)
    evolving.run("insert into plums values (4, 'secret', 4), (5, 'secret', 50)")
    evolving.capture()
    evolving.run("update plums set x = 5 where id = 4")
    evolving.capture()
    evolving.apply()
    assert evolving.stopped() == {}
    expected = [(3, 3), (4, 5)] if name == "rows" else [(2, 20), (3, 3), (4, 5), (5, 50)]
    assert sorted((row["id"], row["x"]) for row in evolving.mirrored("pears")) == expected
    assert all(("secret" in row) is (name == "rows") for row in evolving.mirrored("pears"))
    assert evolving.read_again()


def test_a_renamed_table_stays_when_its_new_name_is_selected_otherwise(
    evolving: EvolvingDatabase,
) -> None:
    evolving.selected_columns = {"public.*l*": ["*", "!secr*"]}
    evolving.begin(*TABLES, ROWS)
    with evolving.capturing() as capture:
        evolving.run("alter table pears rename to plums")
        capture.once()
        evolving.run("insert into plums values (3, 'secret', 3)")
        capture.once()
    goes_on(evolving, "public.pears")
    assert len(evolving.mirrored("pears")) == 2
    assert evolving.jobs() == []
    evolving.selected_columns = {"public.log": ["*", "!secr*"]}
    evolving.capture()
    evolving.apply()
    evolving.check("pears", source="plums")


@pytest.mark.parametrize("is_running", some([True, False]))
def test_a_table_of_the_settings_is_dropped(
    evolving: EvolvingDatabase, *, is_running: bool
) -> None:
    skip_without_conditions(evolving)
    evolving.selected_rows = {"public.pears": "x < 10"}
    evolving.begin(*TABLES, "alter table pears replica identity full", ROWS)
    if is_running:
        with evolving.capturing() as capture:
            evolving.run("drop table pears")
            capture.once()
    else:
        evolving.run("drop table pears")
    goes_on(evolving, "public.pears")


def test_a_selected_column_of_event_files_is_dropped(database: Database, tmp_path: Path) -> None:
    database.execute("create schema a", "create table a.t (id int primary key, secret text)")
    project(tmp_path, database)
    file = tmp_path / "mirrorlake.yaml"
    selected = "tables: ['a.*']\n  columns: {a.t: ['*', '!secret']}"
    file.write_text(file.read_text().replace("tables: ['a.*']", selected))
    settings = config.load(file)
    Mirror(settings).capture_once()
    database.execute("alter table a.t drop secret", "insert into a.t values (1)")
    Mirror(settings).capture_once()
    assert [event["payload"] for event in events(tmp_path / "bucket")] == [{"id": 1}]


def test_no_selected_table_is_left(evolving: EvolvingDatabase) -> None:
    evolving.selected = ("public.pears", "public.plums")
    evolving.begin(*TABLES, ROWS)
    with evolving.capturing() as capture:
        evolving.run("drop table pears")
        capture.once()
        evolving.run(TABLES[0], ROWS)
        capture.once()
        evolving.run("update pears set x = 3 where id = 1")
        capture.once()
    evolving.apply()
    assert evolving.stopped() == {}
    evolving.check("pears")


def test_a_misspelling_is_refused_before_anything_is_loaded(evolving: EvolvingDatabase) -> None:
    evolving.selected_columns = {"public.pears": ["*", "!secrte"]}
    with pytest.raises(PrerequisiteMissing, match="!secrte"):
        evolving.begin(*TABLES, ROWS)
