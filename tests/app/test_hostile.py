"""A landing zone that means harm: nothing outside the root is touched, one table fails alone."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from structlog.testing import capture_logs

from mirrorlake.app.loop.report import ApplyReport
from mirrorlake.app.maintenance.landing_cleanup import CLEANUP_REFUSED
from mirrorlake.app.status import mirror_status
from mirrorlake.config import Project
from mirrorlake.delta import sql
from mirrorlake.errors import TableError, UsageError
from mirrorlake.landing.scan import Scanner
from mirrorlake.mirror.batch_limits import BatchLimits
from mirrorlake.mirror.row_checks import RowChecks
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.model.state import TableState
from mirrorlake.model.table import TableId
from mirrorlake.root import escaped
from mirrorlake.spark.session.spark_session import Spark
from tests.app.zones import MARKER, Zone
from tests.fuzz.apart import Apart

GOOD = {"id": [1], "v": ["a"]}
MIB, GIB = 1 << 20, 1 << 30
NAMES = [
    *("..a", "a..b", "...", "...x", "~", "-rf", "$HOME", "$(id)", "%2e%2e%2f", "a\nb", "a\x1b[31m"),
    *("select", "Tables", "LandingZone", "con", "main", "*", "{a,b}", "[a]", "a'b\"c`d", " "),
    *("n" * 255, "ü" * 127, "数据" * 42, "a\u0308", "\u202etxt"),
]
"""Names that a folder can have, and few people would give it."""

MEANT = ["..a", "%2e%2e%2f", "a\nb", "*", "{a,b}", "[a]", "a'b\"c`d", " "]
"""Those of them that mean something where Spark reads paths."""


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the root, with a table folder of its own in it."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "_metadata.json").write_text('{"keyColumns": ["id"]}')
    pq.write_table(pa.table({"id": [666], "v": ["secret"]}), folder / f"{1:020d}.parquet")
    return folder


@pytest.fixture
def zone(tmp_path: Path) -> Zone:
    """A zone with a table that is as it should be."""
    zone = Zone(tmp_path / "root")
    zone.table("good", "id")
    zone.land("good", 1, GOOD)
    return zone


def tree(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder, with what it holds."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def applied(zone: Zone, outside: Path) -> ApplyReport:
    """One apply, in which the good table gets on and nothing outside the root changes."""
    before = tree(outside)
    report = zone.apply()
    assert zone.rows("good") == [(1, "a")]
    assert tree(outside) == before
    assert {path.name for path in outside.parent.iterdir()} == {"outside", "root"}
    return report


def only_error(report: ApplyReport) -> TableError:
    (error,) = report.errors
    return error


def stated(zone: Zone) -> dict[str, TableState]:
    tables = mirror_status.read(Project.of_root(zone.root)).tables
    return {table.table: table.state for table in tables}


class TestNames:
    @pytest.mark.full
    @pytest.mark.parametrize("name", NAMES)
    def test_a_name_that_a_folder_can_have_is_a_table(
        self, zone: Zone, outside: Path, name: str
    ) -> None:
        zone.table(name, "id")
        zone.land(name, 1, GOOD)
        zone.land(name, 2, {"id": [1], "v": ["b"], MARKER: [1]})
        assert applied(zone, outside).errors == []
        assert zone.rows(name) == [(1, "b")]
        assert stated(zone) == dict.fromkeys(
            ["s.good", str(TableId("s", name))], TableState.REPLICATING
        )

    @pytest.mark.full
    @pytest.mark.spark
    def test_on_spark_they_are_tables_too(self, tmp_path: Path, spark: Spark) -> None:
        zone = Zone(tmp_path / "root", spark)
        for name in NAMES:
            zone.table(name, "id")
            zone.land(name, 1, GOOD)
        report = zone.apply()
        assert {error.table: error for error in report.errors} == {}
        here = Zone(zone.root)  # without Spark, which takes a second for each
        assert [here.rows(name) for name in NAMES] == [[(1, "a")]] * len(NAMES)
        assert [zone.rows(name) for name in MEANT] == [[(1, "a")]] * len(MEANT)

    def test_names_that_differ_only_in_case_are_two_tables(self, zone: Zone, outside: Path) -> None:
        for number, name in enumerate(["T", "t"]):
            zone.table(name, "id")
            zone.land(name, 1, {"id": [number]})
        assert applied(zone, outside).errors == []
        assert (zone.rows("T"), zone.rows("t")) == ([(0,)], [(1,)])
        with pytest.raises(UsageError, match="differ only in case"):
            sql.run(zone.root, "select * from s.t")
        assert sql.run(zone.root, "select count(*) from s.good").fetchall() == [(1,)]

    @pytest.mark.parametrize("schema", ["..schema", "...schema"], ids=["dot", "dots"])
    def test_a_schema_that_would_lead_upwards_is_a_folder_below_the_tables(
        self, zone: Zone, outside: Path, schema: str
    ) -> None:
        folder = zone.root / "Files/LandingZone" / schema / "bad"
        folder.mkdir(parents=True)
        (folder / "_metadata.json").write_text('{"keyColumns": ["id"]}')
        pq.write_table(pa.table(GOOD), folder / f"{1:020d}.parquet")
        assert applied(zone, outside).errors == []
        (table,) = zone.root.glob("**/bad/_delta_log")
        name = escaped(schema.removesuffix(".schema"))
        assert table == zone.root / "Tables" / name / "bad/_delta_log"
        assert {*stated(zone).values()} == {TableState.REPLICATING}

    @pytest.mark.clause("LZ-251")
    def test_a_file_with_the_number_0_is_refused_and_never_moved(
        self, zone: Zone, outside: Path
    ) -> None:
        zone.table("bad", "id")
        for number in (0, 1, 2):
            zone.land("bad", number, {"id": [number]})
        error = only_error(applied(zone, outside))
        assert (error.code, error.file) == ("bad_file", f"{0:020d}.parquet")
        assert (zone.folder("bad") / f"{0:020d}.parquet").exists()

    def test_the_largest_number_is_a_gap_and_costs_nothing(self, zone: Zone, outside: Path) -> None:
        zone.table("bad", "id")
        zone.land("bad", 10**20 - 1, GOOD)
        assert only_error(applied(zone, outside)).code == "missing_file"


class TestLinks:
    def test_a_table_folder_that_is_a_link_is_no_table(self, zone: Zone, outside: Path) -> None:
        zone.folder("bad").symlink_to(outside)
        report = applied(zone, outside)
        assert [str(table) for table in report.tables] == ["s.good"]

    def test_a_data_file_that_is_a_link_is_no_file(self, zone: Zone, outside: Path) -> None:
        zone.table("bad", "id")
        (zone.folder("bad") / f"{1:020d}.parquet").symlink_to(outside / f"{1:020d}.parquet")
        assert applied(zone, outside).errors == []
        assert not (zone.root / "Tables/s/bad").exists()

    def test_metadata_that_is_a_link_is_no_metadata(self, zone: Zone, outside: Path) -> None:
        zone.folder("bad").mkdir()
        (zone.folder("bad") / "_metadata.json").symlink_to(outside / "_metadata.json")
        zone.land("bad", 1, GOOD)
        applied(zone, outside)
        assert stated(zone)["s.bad"] is TableState.INITIALIZED

    def test_a_landing_zone_that_is_a_link_outwards_is_not_read(
        self, tmp_path: Path, outside: Path
    ) -> None:
        zone = Zone(tmp_path / "root")
        (zone.root / "Files").mkdir(parents=True)
        (zone.root / "Files/LandingZone").symlink_to(outside.parent)
        with pytest.raises(UsageError, match="a link that leads out of the root"):
            zone.apply()
        assert not (zone.root / "Tables").exists()

    @pytest.mark.parametrize("link", ["Tables/t2", "Tables/t2/bad"])
    def test_a_table_is_not_written_through_a_link_outwards(
        self, zone: Zone, outside: Path, link: str
    ) -> None:
        folder = zone.root / "Files/LandingZone/t2.schema/bad"
        folder.mkdir(parents=True)
        (folder / "_metadata.json").write_text('{"keyColumns": ["id"]}')
        pq.write_table(pa.table(GOOD), folder / f"{1:020d}.parquet")
        (zone.root / link).parent.mkdir(parents=True, exist_ok=True)
        (zone.root / link).symlink_to(outside)
        error = only_error(applied(zone, outside))
        assert (error.table, error.code) == ("t2.bad", "unsupported_table")
        assert "a link leads out of the root" in str(error)
        assert stated(zone)["t2.bad"] is TableState.FAILED

    @pytest.mark.parametrize("kind", ["link", "file"])
    def test_a_cleanup_folder_that_is_none_keeps_the_files_where_they_are(
        self, zone: Zone, outside: Path, kind: str
    ) -> None:
        location = zone.folder("good") / "_FilesReadyToDelete"
        if kind == "link":
            location.symlink_to(outside)
        else:
            location.write_text("in the way")
        zone.land("good", 2, {"id": [1], "v": ["a"], MARKER: [1]})
        with capture_logs() as lines:
            assert applied(zone, outside).errors == []
        assert [line["table"] for line in lines if line["event"] == CLEANUP_REFUSED] == ["s.good"]
        assert (zone.folder("good") / f"{1:020d}.parquet").exists()


class TestFiles:
    def test_a_pipe_is_no_file_and_nobody_waits_for_it(self, zone: Zone, outside: Path) -> None:
        zone.table("bad", "id")
        os.mkfifo(zone.folder("bad") / f"{1:020d}.parquet")
        assert applied(zone, outside).errors == []

    def test_a_folder_with_the_name_of_a_file_is_no_file(self, zone: Zone, outside: Path) -> None:
        zone.table("bad", "id")
        (zone.folder("bad") / f"{1:020d}.parquet").mkdir()
        assert applied(zone, outside).errors == []

    @pytest.mark.full
    @pytest.mark.clause("LZ-276")
    def test_very_many_empty_files_are_one_error(self, zone: Zone, outside: Path) -> None:
        zone.table("bad", "id")
        for number in range(1, 5_001):
            (zone.folder("bad") / f"{number:020d}.parquet").touch()
        error = only_error(applied(zone, outside))
        assert (error.code, error.file) == ("bad_file", f"{1:020d}.parquet")

    @pytest.mark.full
    @pytest.mark.clause("LZ-141")
    def test_very_many_files_without_rows_are_applied(self, zone: Zone, outside: Path) -> None:
        zone.table("many", "id")
        empty = zone.land("many", 1, {"id": pa.array([], pa.int64())})
        for number in range(2, 2_502):
            os.link(empty, zone.folder("many") / f"{number:020d}.parquet")
        loop = zone.loop()
        loop.open()
        while loop.cycle(None):
            pass
        loop.close()
        assert loop.report.errors == []
        assert zone.rows("many") == []
        many = next(t for t in loop.report.tables.values() if t.table.name == "many")
        assert (many.last_file, many.commits) == (2_501, 2)

    @pytest.mark.full
    @pytest.mark.parametrize("declared", [True, False], ids=["declared", "hidden"])
    def test_a_file_that_would_unfold_to_very_much_stops_its_table_alone(
        self, tmp_path: Path, outside: Path, declared: bool
    ) -> None:
        settings = MirrorSettings(row_checks=RowChecks(file_bytes=64 * MIB))
        zone = Zone(tmp_path / "root", settings=settings)
        for name in ("good", "bomb"):
            zone.table(name, "id")
            zone.land(name, 1, GOOD)
        path = zone.folder("bomb") / f"{2:020d}.parquet"
        if declared:  # what the footer tells
            nothing = {"id": pa.nulls(20_000_000, pa.int64()), MARKER: pa.nulls(1, pa.int8())}
            nothing[MARKER] = pa.nulls(20_000_000, pa.int8())
            pq.write_table(pa.table(nothing), path)
        else:  # one long text in every row
            index = np.zeros(50_000, np.int32)
            text = pa.DictionaryArray.from_arrays(index, pa.array(["x" * MIB]))
            columns = {"id": range(50_000), "v": text}
            pq.write_table(pa.table(columns), path, store_schema=False)
        assert path.stat().st_size < MIB
        error = only_error(applied(zone, outside))
        assert (error.table, error.code, error.file) == ("s.bomb", "file_too_large", path.name)
        assert zone.rows("bomb") == [(1, "a")]


MILLION = pytest.param(1_000_000, marks=[pytest.mark.long, pytest.mark.timeout(3_600)])


@pytest.mark.full
class TestVeryManyFiles:
    """Folders of very many files, of which none can be applied, or all."""

    @pytest.fixture(params=[20_000, MILLION])
    def count(self, request: pytest.FixtureRequest) -> int:
        return int(request.param)

    @pytest.mark.clause("LZ-267", "LZ-276")
    def test_empty_and_tiny_ones_hold_up_no_other_table(
        self, zone: Zone, outside: Path, count: int
    ) -> None:
        for name in ("empty", "tiny"):
            zone.table(name, "id")
        for number in range(1, count + 1):
            (zone.folder("empty") / f"{number:020d}.parquet").touch()
        fill(zone, "tiny", count)
        apart = Apart(memory=GIB, patience=3_000)  # for all of the process, of two times a million
        try:
            errors, tiny = apart.run(one_cycle, zone.root)
        finally:
            apart.close()
        assert errors == [("bad_file", f"{1:020d}.parquet")]
        assert zone.rows("good") == [(1, "a")]
        # A cycle takes what one batch may hold, however much there is.
        assert tiny == (BatchLimits().files, 1)
        assert len(zone.rows("tiny")) == 1

    def test_a_scan_of_them_takes_a_few_hundred_bytes_each(self, zone: Zone) -> None:
        """Most of it are the objects: a name, its number, an etag and a time for each file."""
        count = 4_000
        for name in ("one", "other"):
            zone.table(name, "id")
            for number in range(1, count + 1):
                (zone.folder(name) / f"{number:020d}.parquet").touch()
        scanner = Scanner(zone.store)
        tracemalloc.start()
        try:
            scans = scanner.scan()
            kept, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert [len(scan.files) for scan in scans] == [1, count, count]
        assert kept < 350 * 2 * count
        assert peak < 400 * 2 * count


def one_cycle(root: Path) -> tuple[list[tuple[str, str | None]], tuple[int | None, int]]:
    """The errors of one cycle, and the last file and the commits of the table `tiny`."""
    loop = Zone(root).loop()
    loop.open()
    loop.cycle(None)
    loop.close()
    tiny = next(t for t in loop.report.tables.values() if t.table.name == "tiny")
    return [(e.code, e.file) for e in loop.report.errors], (tiny.last_file, tiny.commits)


def fill(zone: Zone, table: str, count: int) -> None:
    """`count` files of one row each, as few files with many names: a name costs less."""
    source = zone.land(table, 1, {"id": [1], "v": ["a"], MARKER: [4]})
    content = source.read_bytes()
    for number in range(2, count + 1):
        path = zone.folder(table) / source.with_stem(f"{number:020d}").name
        if number % 30_000:
            os.link(source, path)
        else:
            path.write_bytes(content)
            source = path
