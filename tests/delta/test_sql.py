"""Before a query runs, the pages that it may read are verified."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mirrorlake.delta import export, sql
from mirrorlake.delta.export import FileForm
from mirrorlake.errors import ForeignTable, UsageError
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from tests.cli.conftest import Run, run
from tests.delta.handmade import HandmadeTable
from tests.delta.lookup.test_key_lookup import filled
from tests.delta.lookup.test_page_checksums import flipped
from tests.delta.write.test_rewrite import net_of
from tests.histories import Landing, Shape
from tests.reference import Change, Row

__all__ = ["run"]

SHAPE = Shape.of(["id"], id=types.LONG, note=types.STRING, region=types.STRING)
ROWS = [(1, "first", "north"), (2, "second", "south"), (3, "third", "north")]

USING = [
    "from s.t",
    'SELECT "NOTE" FROM S.T',
    "select id from s.t where note like '%ir%'",
    "select count(*) from s.t where length(note) > 5 or id = 7",
    "select id from s.t order by note limit 1",
    "select t.id from s.t join s.t u on t.note = u.note",
    "select id from s.t where exists (from s.t u where u.note > t.region)",
    "with k as (from s.t) select max(length(note)) from k",
    "select sum(id) over (partition by note) from s.t",
    "summarize s.t",
    "from query_table('s.t')",
    "from query('from s.t')",
    "select columns('no.*') from s.t",
    "pivot s.t on region using max(note)",
    "explain analyze select length(note) from s.t",
    "select 1; select note from s.t",
    "create table x as from s.t",
    "create macro notes() as table select note from s.t; from notes()",
]
"""Queries that read the column `note`."""

NOT_USING = [
    "select id, region from s.t",
    "select count(*) from s.t",
    "select region from s.t where id > 1 order by id",
    "select count(*) from s.t t join s.t u using (id)",
    "describe s.t",
]


@pytest.fixture
def table(tmp_path: Path) -> HandmadeTable:
    return table_at(tmp_path)


def table_at(
    root: Path, name: str = "t", schema: str = "s", *, gone: tuple[int, ...] = (), **how: Any
) -> Any:
    """A table with the rows in one file, some of them deleted, and in another file none of them."""
    made = HandmadeTable(root / "Tables" / schema / name, SHAPE.schema, **how)
    return filled(made, SHAPE, [([(9, "ninth", "east")], []), (ROWS, gone)])


def damaged(table: HandmadeTable, value: bytes = b"third") -> Path:
    """The file with the rows, in which a bit of a value is another."""
    return flipped(table.path / table.files[1]["path"], value)


def rows(root: Path, query: str, **how: Any) -> list[Row]:
    result = sql.run(root, query, **how)
    return [] if result is None else sorted(sql.fetched(result))


@pytest.mark.parametrize("query", USING)
def test_a_query_that_uses_a_damaged_column_has_no_rows(
    tmp_path: Path, table: HandmadeTable, query: str
) -> None:
    rows(tmp_path, query)
    path = damaged(table)
    with pytest.raises(ForeignTable) as raised:
        sql.run(tmp_path, query)
    assert raised.value.table == "s.t"
    assert f"{path.name}: a page of column note does not match its checksum" in raised.value.what
    assert "`mirrorlake reset s.t`" in raised.value.hint


@pytest.mark.parametrize("query", NOT_USING)
def test_a_damaged_column_that_a_query_does_not_use_is_no_error(
    tmp_path: Path, table: HandmadeTable, query: str
) -> None:
    before = rows(tmp_path, query)
    damaged(table)
    assert rows(tmp_path, query) == before != []


def test_a_damaged_table_that_a_query_does_not_name_is_no_error(
    tmp_path: Path, table: HandmadeTable
) -> None:
    damaged(table_at(tmp_path, "region"))
    query = "select region from s.t"
    assert len(rows(tmp_path, query)) == 4
    damaged(table_at(tmp_path, schema="u"))
    assert len(rows(tmp_path, "select note from s.t")) == 4
    with pytest.raises(ForeignTable, match=r"s\.region"):
        sql.run(tmp_path, f"{query} union all select note from s.region")


def test_nothing_is_verified_for_a_wrong_query(tmp_path: Path, table: HandmadeTable) -> None:
    damaged(table)
    for query in ("select note, nothing from s.t", "select note from s.t, s.u", "selec note, t"):
        with pytest.raises(UsageError):
            sql.run(tmp_path, query)


def test_rows_are_read_without_verification_on_request(
    tmp_path: Path, table: HandmadeTable
) -> None:
    damaged(table)
    found = rows(tmp_path, "select note from s.t where id = 3", verify=False)
    assert found == [("uhird",)]


def test_rows_that_a_deletion_vector_has_removed_are_not_read(tmp_path: Path) -> None:
    table = table_at(tmp_path, gone=(1,))
    assert [row[0] for row in rows(tmp_path, "from s.t")] == [1, 3, 9]
    damaged(table)
    assert rows(tmp_path, "select count(*) from s.t") == [(3,)]
    assert rows(tmp_path, "select id from s.t where region = 'north'") == [(1,), (3,)]
    with pytest.raises(ForeignTable, match="column note"):
        sql.run(tmp_path, "select note from s.t")


def test_columns_may_have_other_names_in_files(tmp_path: Path) -> None:
    table = table_at(tmp_path, mapped=True)
    damaged(table)
    assert rows(tmp_path, "select id from s.t where region = 'north'") == [(1,), (3,)]
    stored = table.schema.physical_of("note")
    assert stored != "note"
    for query in ("select note from s.t", "select id from s.t where note = 'third'"):
        with pytest.raises(ForeignTable, match=f"column {stored}"):
            sql.run(tmp_path, query)


@pytest.mark.parametrize("name", ["größe", "two words", 'a"b', "a.b", "a\nb"])
def test_a_column_may_have_any_name(tmp_path: Path, name: str) -> None:
    shape = Shape.of(["id"], id=types.LONG, **{name: types.STRING})
    table = HandmadeTable(tmp_path / "Tables/s/t", shape.schema)
    filled(table, shape, [([(1, "first"), (2, "second")], [])])
    flipped(table.path / table.files[0]["path"], b"second")
    with pytest.raises(ForeignTable, match="checksum"):
        sql.run(tmp_path, "from s.t")


def test_partition_columns_are_in_no_file(tmp_path: Path) -> None:
    table = HandmadeTable(tmp_path / "Tables/s/t", SHAPE.schema, partitions=["region"])
    landed = Landing((tuple(Change(Marker.INSERT, row) for row in ROWS),))
    table.apply(net_of(SHAPE, landed))
    assert rows(tmp_path, "from s.t") == ROWS
    (north,) = (add for add in table.files if add["partitionValues"]["region"] == "north")
    flipped(table.path / north["path"], b"third")
    assert rows(tmp_path, "select id from s.t where region = 'north'") == [(1,), (3,)]
    with pytest.raises(ForeignTable, match="column note"):
        sql.run(tmp_path, "select note from s.t")


def test_only_the_files_of_the_version_are_verified(tmp_path: Path) -> None:
    table = HandmadeTable(tmp_path / "Tables/s/t", SHAPE.schema)
    filled(table, SHAPE, [(ROWS[:2], []), (ROWS, [])])
    damaged(table)
    assert rows(tmp_path, "from s.t", versions={table.path: 1}) == ROWS[:2]
    with pytest.raises(ForeignTable, match="column note"):
        sql.run(tmp_path, "from s.t", versions={table.path: 2})


def test_a_file_that_is_emptied_meanwhile_is_named(
    tmp_path: Path, table: HandmadeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = table.path / table.files[1]["path"]
    create_view = sql.create_view

    def then_emptied(*arguments: Any) -> Any:
        made = create_view(*arguments)
        path.write_bytes(b"")
        return made

    monkeypatch.setattr(sql, "create_view", then_emptied)
    with pytest.raises(ForeignTable, match=rf"{path.name} cannot be read"):
        sql.run(tmp_path, "from s.t")


@pytest.mark.parametrize("form", FileForm)
def test_a_damaged_table_is_not_exported(
    tmp_path: Path, table: HandmadeTable, form: FileForm
) -> None:
    damaged(table)
    before = set(tmp_path.iterdir())
    with pytest.raises(ForeignTable, match="column note"):
        export.write(tmp_path, "s.t", form, tmp_path / "rows")
    assert set(tmp_path.iterdir()) == before
    export.write(tmp_path, "s.t", form, tmp_path / "rows", verify=False)
    assert (tmp_path / "rows").stat().st_size


def test_the_commands_end_with_an_error_and_no_rows(tmp_path: Path, run: Run) -> None:
    damaged(table_at(tmp_path / "shop"))
    query = ["sql", "select note from s.t order by id", "--root", "shop"]
    read = ["read", "s.t", "--root", "shop", "--csv", "rows.csv"]
    for command in (query, [*query, "--json"], read):
        done = run(*command)
        assert (done.code, done.out) == (1, "")
        assert "a page of column note does not match its checksum" in done.error
    assert not (tmp_path / "rows.csv").exists()
    found = run(*query, "--json", "--no-verify").facts()
    assert [row["note"] for row in found] == ["first", "second", "uhird", "ninth"]
    assert run(*read, "--no-verify").code == 0
    assert "uhird" in (tmp_path / "rows.csv").read_text()
