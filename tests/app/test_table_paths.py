"""Folders below `Tables`: every reader takes them, and those of earlier releases stay."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mirrorlake.app import files
from mirrorlake.app.reset import plan_reset
from mirrorlake.app.status import mirror_status
from mirrorlake.config import Project
from mirrorlake.delta import sql
from mirrorlake.errors import UsageError
from mirrorlake.model.table import TableId
from mirrorlake.root import escaped, true_name
from mirrorlake.spark.session.spark_session import Spark
from tests.app.zones import MARKER, Zone
from tests.delta.readers import rows_by_delta_rs, rows_by_duckdb

NAMES = ["%5Fx", "a%2Fb", "a%b", "%54", "x~y", "a\nb", "..a", "a b", "100%", "ü"]
"""Names of folders of a zone that others fill."""


@pytest.fixture
def zone(tmp_path: Path) -> Zone:
    return Zone(tmp_path / "root")


def filled(zone: Zone, name: str) -> Path:
    zone.table(name, "id")
    zone.land(name, 1, {"id": [1], "v": ["a"]})
    assert zone.apply().errors == []
    return zone.root / "Tables/s" / escaped(name)


def queried(zone: Zone, name: str) -> list[tuple[object, ...]]:
    quoted = name.replace('"', '""')
    found = sql.run(zone.root, f'select id, v from s."{quoted}"')
    assert found is not None
    return found.fetchall()


@given(st.text(min_size=1))
@example(".")
@example("..")
def test_a_name_can_be_read_from_its_folder(name: str) -> None:
    folder = escaped(name)
    assert true_name(folder) == name
    assert not set("%/\\") & set(folder)
    assert folder[0] not in "._"


@pytest.mark.parametrize("name", ["orders", "Order Lines", "ü", "a-b", "a.b", "x_y"])
def test_an_ordinary_name_is_its_folder(name: str) -> None:
    assert escaped(name) == name


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_delta_rs_duckdb_and_sql_read_a_table_of_any_name(zone: Zone, name: str) -> None:
    path = filled(zone, name)
    assert rows_by_delta_rs(path) == [(1, "a")]
    # DuckDB looks for the files of a folder with other letters in a wrong place, unless by its URL.
    assert rows_by_duckdb(path if name.isascii() else path.as_uri()) == [(1, "a")]
    assert queried(zone, name) == [(1, "a")]


@pytest.mark.full
@pytest.mark.spark
def test_spark_writes_and_reads_them(tmp_path: Path, spark: Spark) -> None:
    zone = Zone(tmp_path / "root", spark)
    for name in NAMES:
        zone.table(name, "id")
        zone.land(name, 1, {"id": [1], "v": ["a"]})
    assert zone.apply().errors == []
    assert [zone.rows(name) for name in NAMES] == [[(1, "a")]] * len(NAMES)
    assert [queried(zone, name) for name in NAMES] == [[(1, "a")]] * len(NAMES)


@pytest.mark.full
@pytest.mark.parametrize("name", ["%5Fx", "a\nb", "..a", "x~y"])
def test_a_table_of_an_earlier_release_stays_in_its_place(zone: Zone, name: str) -> None:
    filled(zone, name).rename(earlier := zone.root / "Tables/s" / name)
    zone.land(name, 2, {"id": [1, 2], "v": ["b", "c"], MARKER: [1, 0]})
    assert zone.apply().errors == []
    assert not (zone.root / "Tables/s" / escaped(name)).exists()
    assert (earlier / "_delta_log").exists()
    assert sorted(queried(zone, name)) == [(1, "b"), (2, "c")]
    project = Project.of_root(zone.root)
    assert files.read(project, f"s.{name}").recorded == 2
    (status,) = mirror_status.read(project).tables
    assert (status.table, status.last_file) == (str(TableId("s", name)), 2)
    (said,) = plan_reset(project, [f"s.{name}"]).sentences()
    assert f"delete Tables/s/{name} " in said


def test_the_table_of_another_folder_is_not_taken_for_one_of_an_earlier_release(
    tmp_path: Path,
) -> None:
    zone = Zone(tmp_path / "root")
    filled(zone, "x").rename(zone.root / "Tables/s/%78")
    assert filled(zone, "%78") == zone.root / "Tables/s/~2578"


def test_a_table_that_cannot_be_read_leaves_the_others_to_sql(zone: Zone) -> None:
    path = filled(zone, "bad")
    filled(zone, "good")
    (path / "_delta_log" / f"{0:020d}.json").write_text("{")
    assert queried(zone, "good") == [(1, "a")]
    query = "select (select count(*) from s.good) as bad"  # the word is no table here
    assert sql.run(zone.root, query).fetchall() == [(1,)]
    with pytest.raises(UsageError, match="bad cannot be read"):
        queried(zone, "bad")


def test_a_partition_value_that_is_none_leaves_the_others_to_sql(zone: Zone) -> None:
    path, rows = zone.root / "Tables/odd", pa.table({"id": [1], "at": [date(2026, 1, 2)]})
    deltalake.write_deltalake(path, rows, partition_by=["at"])
    commit = path / "_delta_log" / f"{0:020d}.json"
    commit.write_text(commit.read_text().replace('"2026-01-02"', '"2026-02-30"'))
    with pytest.raises(UsageError, match="odd cannot be read"):
        sql.run(zone.root, "select * from odd")
