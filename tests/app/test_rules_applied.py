"""Rules that smaller tests prove of one part, here of the tables: from landed files to rows."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mirrorlake.app.reset import plan_reset
from mirrorlake.apply.logs.progress import read_progress
from mirrorlake.config import Project, load
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.errors import KeyColumnsChanged, KeyedChangeWithoutKey, SchemaMergeFailure
from mirrorlake.mirror.batch_limits import BatchLimits
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.mirror.table.progress import FOLDER
from tests.app.operated import DAY, Operated
from tests.app.zones import MARKER, Zone
from tests.delta.handmade import HandmadeTable


@pytest.fixture
def zone(tmp_path: Path) -> Zone:
    return Zone(tmp_path / "root")


@pytest.fixture
def growing(zone: Zone) -> Zone:
    """A zone with a table `t`, whose files are applied without metadata too."""
    zone = Zone(zone.root, settings=MirrorSettings(metadata_required=False))
    zone.folder("t").mkdir(parents=True)
    return zone


def describe(zone: Zone, **members: Any) -> None:
    zone.folder("t").mkdir(parents=True, exist_ok=True)
    (zone.folder("t") / "_metadata.json").write_text(json.dumps(members))


def columns(zone: Zone) -> list[str]:
    return list(HandmadeTable(zone.root / "Tables/s/t").schema.schema.names)


class TestMarkers:
    @pytest.mark.clause("LZ-087")
    def test_no_file_of_a_table_has_the_marker(self, zone: Zone) -> None:
        describe(zone, keyColumns=["id"])
        zone.land("t", 1, {"id": [1, 2], "v": ["a", "b"], MARKER: [0, 0]})
        zone.land("t", 2, {"id": [1], "v": ["c"], MARKER: [4]})
        assert not zone.apply().errors
        assert columns(zone) == ["id", "v"]
        files = list((zone.root / "Tables/s/t").rglob("*.parquet"))
        assert files
        assert not [path for path in files if MARKER.encode() in path.read_bytes()]

    @pytest.mark.clause("LZ-098", "LZ-099")
    @pytest.mark.parametrize("marked", [1, 2, 3])
    def test_a_load_ends_with_the_first_marker_in_any_file(
        self, tmp_path: Path, marked: int
    ) -> None:
        mirror = Operated(tmp_path / "root", limits=BatchLimits(files=1))
        mirror.zone.table("t", "id")
        for number in range(1, 6):
            mirror.land("t", number, marker=0 if number == marked else None)
        shown = []
        with mirror.running() as loop:
            for number in range(1, 5):  # and one file is left to the end
                mirror.cycles(loop, 5)
                table = mirror.mirrored("t")
                assert table is not None
                assert table.recorded == number
                shown.append(mirror.shown("t")["status"])
        assert shown == ["Snapshotting"] * (marked - 1) + ["Replicating"] * (5 - marked)


class TestKeys:
    @pytest.mark.clause("LZ-039", "LZ-035")
    @pytest.mark.parametrize("metadata", [{}, None], ids=["no key", "no metadata"])
    def test_a_key_that_comes_later_matches_the_rows_that_are_there(
        self, growing: Zone, metadata: dict[str, Any] | None
    ) -> None:
        zone = growing
        if metadata is not None:
            describe(zone, **metadata)
        zone.land("t", 1, {"id": [1, 2, 2], "v": ["a", "b", "c"]})
        assert not zone.apply().errors
        describe(zone, keyColumns=["id"])
        zone.land("t", 2, {"id": [1, 2], "v": ["new", None], MARKER: [1, 2]})
        assert not zone.apply().errors
        assert zone.rows("t") == [(1, "new")]

    @pytest.mark.clause("LZ-034", "LZ-043", "LZ-044")
    @pytest.mark.parametrize(
        ("metadata", "marker"),
        [
            ({"isUpsertDefaultRowMarker": True}, None),
            *(({}, marker) for marker in (1, 2, 4)),
            *(({"keyColumns": []}, marker) for marker in (1, 2, 4)),
            *((None, marker) for marker in (1, 2, 4)),
        ],
    )
    def test_without_one_nothing_of_a_keyed_file_is_applied(
        self, growing: Zone, metadata: dict[str, Any] | None, marker: int | None
    ) -> None:
        zone = growing
        if metadata is not None:
            describe(zone, **metadata)
        first = {"id": [1], "v": ["a"], MARKER: [0]}
        zone.land("t", 1, first)
        later: dict[str, Any] = {"id": [2, 3], "v": ["b", "c"]}
        zone.land("t", 2, later if marker is None else later | {MARKER: [0, marker]})
        zone.land("t", 3, {"id": [4], "v": ["d"], MARKER: [0]})
        (error,) = zone.apply().errors
        assert (type(error), error.file) == (KeyedChangeWithoutKey, f"{2:020d}.parquet")
        assert zone.rows("t") == [(1, "a")]

    @pytest.mark.clause("LZ-036", "LZ-038")
    def test_another_key_stops_the_table_until_it_is_rebuilt(self, zone: Zone) -> None:
        describe(zone, keyColumns=["id"])
        zone.land("t", 1, {"id": [1, 2], "v": ["a", "a"]})
        assert not zone.apply().errors
        describe(zone, keyColumns=["v"])
        zone.land("t", 2, {"id": [1], "v": ["a"], MARKER: [2]})
        for _ in range(2):
            (error,) = zone.apply().errors
            assert isinstance(error, KeyColumnsChanged)
            assert zone.rows("t") == [(1, "a"), (2, "a")]
        log = TableLog(str(zone.root / "Tables/s/t"))
        assert read_progress(log, "s.t").key == ("id",)
        plan_reset(Project.of_root(zone.root), ["s.t"]).execute()
        assert not zone.apply().errors
        assert zone.rows("t") == []  # by the new key both rows are meant


class TestColumns:
    @pytest.mark.clause("LZ-211", "LZ-213", "LZ-214", "LZ-215", "LZ-226")
    @pytest.mark.parametrize("extension", ["parquet", "csv"])
    def test_a_renamed_column_is_one_that_ends_and_one_that_begins(
        self, zone: Zone, extension: str
    ) -> None:
        describe(zone, keyColumns=["id"])
        land(zone, 1, extension, id="1", old="a")
        land(zone, 2, extension, id="2", new="b")
        land(zone, 3, extension, id="3", old="c", new="d")
        assert not zone.apply().errors
        assert columns(zone) == ["id", "old", "new"]
        assert zone.rows("t") == [("1", "a", None), ("2", None, "b"), ("3", "c", "d")]

    @pytest.mark.clause("LZ-146", "LZ-174")
    def test_types_that_are_declared_are_those_of_text_alone(self, zone: Zone) -> None:
        declared = {"Columns": [{"Name": "id", "DataType": "String"}]}
        describe(zone, keyColumns=["id"], SchemaDefinition=declared, FileFormat="CSV")
        zone.land("t", 1, {"id": [1], "more": [2.5]})
        assert not zone.apply().errors
        assert zone.rows("t") == [(1, 2.5)]


def land(zone: Zone, number: int, extension: str, **row: str) -> None:
    if extension == "parquet":
        zone.land("t", number, {name: [value] for name, value in row.items()})
        return
    text = f"{','.join(row)}\r\n{','.join(row.values())}\r\n"
    (zone.folder("t") / f"{number:020d}.csv").write_text(text, newline="")


class TestTables:
    @pytest.mark.clause("LZ-230")
    def test_a_table_remembers_the_folder_that_it_is_made_of(self, zone: Zone) -> None:
        describe(zone, keyColumns=["id"])
        zone.land("t", 1, {"id": [1]})
        zone.apply()
        progress = read_progress(TableLog(str(zone.root / "Tables/s/t")), "s.t")
        assert progress.properties[FOLDER] == "Files/LandingZone/s.schema/t"

    @pytest.mark.clause("LZ-118")
    def test_another_process_goes_on_with_the_next_number(self, tmp_path: Path) -> None:
        mirror = Operated(tmp_path / "root")
        mirror.table("t", "a", "b")
        mirror.once()
        for path in mirror.zone.folder("t").rglob("*.parquet"):
            path.unlink()  # the number is all that is needed
        mirror.land("t", 3, "c")
        assert not mirror.once().errors
        assert mirror.rows("t") == [(1, "a"), (2, "b"), (3, "c")]

    @pytest.mark.clause("LZ-242", "LZ-243", "LZ-244", "LZ-245", "LZ-251")
    def test_files_leave_the_folder_by_themselves_and_then_the_root(self, tmp_path: Path) -> None:
        mirror = Operated(tmp_path / "root", retention=timedelta(days=7))
        mirror.table("t", "a", "b", "c")
        mirror.land("t", 5, "waits for 4")
        mirror.once()
        assert mirror.files("t") == {3, 5}
        aside = mirror.zone.folder("t") / "_FilesReadyToDelete"
        assert {int(path.stem) for path in aside.glob("*.parquet")} == {1, 2}
        mirror.clock.advance(6 * DAY)
        mirror.once()
        assert {int(path.stem) for path in aside.glob("*.parquet")} == {1, 2}
        mirror.clock.advance(2 * DAY)
        mirror.once()
        assert not list(aside.glob("*.parquet"))
        assert mirror.files("t") == {3, 5}

    @pytest.mark.clause("LZ-252")
    def test_the_operator_says_how_long_they_lie_aside(self, tmp_path: Path) -> None:
        project = tmp_path / "mirrorlake.yaml"
        project.write_text("name: p\nroot: root\nlanding: {retention_days: 2}\n")
        mirror = Operated(tmp_path / "root", retention=load(project, {}).mirror.retention)
        mirror.table("t", "a", "b")
        mirror.once()
        aside = mirror.zone.folder("t") / "_FilesReadyToDelete"
        left = []
        for days in (1.9, 0.2):
            mirror.clock.advance(days * DAY)
            mirror.once()
            left.append(len(list(aside.glob("*.parquet"))))
        assert left == [1, 0]


@pytest.mark.clause("LZ-200", "LZ-206")
@pytest.mark.parametrize(
    ("text", "row", "clause"),
    [("id,v\n1,a\n", 0, "LZ-200"), ("id,v\r\n1,", 1, "LZ-200"), ("id,v\r\n1,\r\n", 1, "LZ-205")],
    ids=["line ends", "the last one", "nullable where nothing is said"],
)
def test_texts_are_read_strictly_where_the_project_says_so(
    tmp_path: Path, text: str, row: int, clause: str
) -> None:
    project = tmp_path / "mirrorlake.yaml"
    for strict in ("false", "true"):
        project.write_text(f"name: p\nroot: root\nlanding: {{strict_text: {strict}}}\n")
        zone = Zone(tmp_path / strict, settings=load(project, {}).mirror)
        entries = [{"Name": "id", "DataType": "Int32"}, {"Name": "v", "DataType": "String"}]
        describe(zone, keyColumns=["id"], SchemaDefinition={"Columns": entries})
        (zone.folder("t") / f"{1:020d}.csv").write_text(text, newline="")
        errors = zone.apply().errors
        found = [(error.row, clause in error.what) for error in errors]
        assert found == ([(row, True)] if strict == "true" else [])


@pytest.mark.clause("LZ-344")
def test_the_files_of_a_real_table(zone: Zone) -> None:
    described = declared(("zona", "String"), ("id", "Int32"), ("valor", "Double"))
    describe(zone, keyColumns=["zona", "id"], **described)
    marked = f"zona,id,valor,{MARKER}"
    files = [
        ("zona,id,valor", "N,1,1.5", "N,2,2.5", "S,1,3.5"),
        (marked, "S,2,4.5,0", "S,3,5.5,0"),
        (marked, "N,1,9.5,1", "S,1,8.5,1"),
        (marked, "N,2,,2", "S,3,,2"),
        ("zona,id,valor,seqNum", "O,1,7.5,17"),
    ]
    for number, lines in enumerate(files, start=1):
        text = "".join(f"{line}\r\n" for line in lines)
        (zone.folder("t") / f"{number:020d}.csv").write_text(text, newline="")
    assert not zone.apply().errors
    assert columns(zone) == ["zona", "id", "valor"]
    assert zone.rows("t") == [("N", 1, 9.5), ("O", 1, 7.5), ("S", 1, 8.5), ("S", 2, 4.5)]


def declared(*columns: tuple[str, str]) -> dict[str, Any]:
    """A definition of these columns and types, all nullable."""
    named = [{"Name": name, "DataType": kind, "IsNullable": True} for name, kind in columns]
    return {"SchemaDefinition": {"Columns": named}}


@pytest.mark.clause("LZ-325")
class TestColumnsThatChange:
    """Add, drop, retype and rename, in Parquet and in CSV with and without `SchemaDefinition`."""

    @pytest.fixture(params=["Parquet", "declared", "plain"])
    def form(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    def land(self, zone: Zone, form: str, number: int, **row: tuple[str, int | str]) -> None:
        """A file of one row, whose columns have a type and a value each."""
        values = {name: value for name, (_kind, value) in row.items()}
        kinds = [(name, kind) for name, (kind, _value) in row.items()]
        described = declared(*kinds) if form == "declared" else {}
        describe(zone, keyColumns=["id"], **described)
        if form == "Parquet":
            types = {"Int32": pa.int32(), "Int64": pa.int64(), "String": pa.string()}
            arrays = {name: pa.array([values[name]], types[kind]) for name, kind in kinds}
            zone.land("t", number, arrays)
        else:
            text = f"{','.join(values)}\r\n{','.join(map(str, values.values()))}\r\n"
            (zone.folder("t") / f"{number:020d}.csv").write_text(text, newline="")
        self.error = next(iter(zone.apply().errors), None)

    def seen(self, form: str, *row: int | str | None) -> tuple[Any, ...]:
        """A row as it is read: without declared types every value is a text."""
        return tuple(str(v) if form == "plain" and v is not None else v for v in row)

    def test_added(self, zone: Zone, form: str) -> None:
        self.land(zone, form, 1, id=("Int32", 1))
        self.land(zone, form, 2, id=("Int32", 2), v=("Int32", 7))
        assert self.error is None
        assert zone.rows("t") == [self.seen(form, 1, None), self.seen(form, 2, 7)]

    def test_dropped(self, zone: Zone, form: str) -> None:
        self.land(zone, form, 1, id=("Int32", 1), v=("Int32", 7))
        self.land(zone, form, 2, id=("Int32", 2))
        assert self.error is None
        assert zone.rows("t") == [self.seen(form, 1, 7), self.seen(form, 2, None)]

    def test_renamed(self, zone: Zone, form: str) -> None:
        self.land(zone, form, 1, id=("Int32", 1), v=("Int32", 7))
        self.land(zone, form, 2, id=("Int32", 2), w=("Int32", 8))
        assert self.error is None
        assert zone.rows("t") == [self.seen(form, 1, 7, None), self.seen(form, 2, None, 8)]

    @pytest.mark.parametrize("kind", ["Int64", "String"])
    def test_retyped(self, zone: Zone, form: str, kind: str) -> None:
        self.land(zone, form, 1, id=("Int32", 1), v=("Int32", 7))
        self.land(zone, form, 2, id=("Int32", 2), v=(kind, "8" if kind == "String" else 8))
        if form == "plain":  # every column is a text, whatever is in it
            assert self.error is None
            assert zone.rows("t") == [self.seen(form, 1, 7), self.seen(form, 2, 8)]
            return
        assert isinstance(self.error, SchemaMergeFailure)
        assert (self.error.column, zone.rows("t")) == ("v", [(1, 7)])
