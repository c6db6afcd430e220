"""Tables in timestamp mode, and of delimited text: acknowledged, dropped and begun anew."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirrorlake import root
from mirrorlake.app.loop.apply_loop import ApplyLoop
from mirrorlake.app.loop.report import ApplyReport
from mirrorlake.app.mirror import Mirror
from mirrorlake.config import Project
from mirrorlake.landing import layout
from mirrorlake.landing.cleanup import is_remnant
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.mirror.table.processed import folder_of
from tests.app.zones import Zone
from tests.doubles.clock import SteppedClock

BY_TIME = {"fileDetectionStrategy": "LastUpdateTimeFileDetection"}
PATH = "Tables/s/t"


class Named(Zone):
    """A zone with one table `t`, real tables, and simulated time."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, settings=MirrorSettings(cleanup_seconds=0))
        self.clock = SteppedClock()

    def describe(self, **members: Any) -> None:
        self.folder("t").mkdir(parents=True, exist_ok=True)
        content = json.dumps({"keyColumns": ["id"], **members})
        (self.folder("t") / "_metadata.json").write_text(content)

    def put(self, name: str, *rows: int) -> None:
        pq.write_table(pa.table({"id": list(rows)}), self.folder("t") / name)

    def write(self, name: str, text: str) -> None:
        (self.folder("t") / name).write_text(text)

    def loop(self, *_arguments: Any, **_named: Any) -> ApplyLoop:
        return super().loop(self.clock)

    def wait(self) -> None:
        loop = self.loop()
        loop.open()
        for _ in range(30):
            self.clock.advance(5)
            loop.cycle(None)
        loop.close()

    def mirror(self) -> Mirror:
        return Mirror(Project(name="p", root=self.root))

    def told(self) -> list[tuple[Any, ...]]:
        found = self.mirror().files("s.t").facts()
        keys = ("names", "first", "state", "version")
        return [tuple(file.get(key) for key in keys) for file in found["files"]]


@pytest.fixture
def zone(tmp_path: Path) -> Named:
    """Two files by time in one commit, a third in the next."""
    zone = Named(tmp_path / "root")
    zone.describe(**BY_TIME)
    zone.put("b.parquet", 1, 2)
    zone.put("a.parquet", 3)
    _done(zone.apply())
    zone.put("c.parquet", 4)
    _done(zone.apply())
    return zone


def _done(report: ApplyReport) -> None:
    assert not report.errors


class TestFilesFoundByTime:
    def test_each_is_acknowledged_by_its_name(self, zone: Named) -> None:
        zone.put("z.parquet", 5)
        assert zone.told() == [
            (["b.parquet"], None, "applied", 0),
            (["a.parquet"], None, "applied", 0),
            (["c.parquet"], None, "applied", 1),
            (["z.parquet"], None, "waiting", None),
        ]
        found = zone.mirror().files("s.t")
        assert found.recorded is None
        assert [file.rows["insert"] for file in found.files if file.rows] == [2, 1, 1]

    def test_names_that_the_log_forgot_are_told_too(self, zone: Named) -> None:
        told = zone.told()
        for said in (zone.root / PATH / "_delta_log").glob("*0.json"):
            lines = [json.loads(line) for line in said.read_text().splitlines()]
            kept = [json.dumps(line) for line in lines if "commitInfo" not in line]
            said.write_text("\n".join(kept) + "\n")
        assert zone.told() == [
            (["a.parquet", "b.parquet"], None, "applied", None),
            told[-1],
        ]

    def test_totals_and_pending_files_are_counted(self, zone: Named) -> None:
        zone.put("z.parquet", 5)
        (table,) = zone.mirror().status().tables
        assert (table.total.insert, table.pending_files, table.last_file) == (4, 1, "c.parquet")

    def test_a_deleted_folder_drops_table_and_record(self, zone: Named) -> None:
        record = zone.root / folder_of(PATH)
        assert record.exists()
        shutil.rmtree(zone.folder("t"))
        zone.wait()
        assert not (zone.root / PATH / "_delta_log").exists()
        assert not record.exists()
        zone.describe(**BY_TIME)
        zone.put("a.parquet", 7)
        _done(zone.apply())
        assert zone.rows("t") == [(7,)]

    def test_what_lies_aside_without_a_number_is_no_remnant(self, zone: Named) -> None:
        folder = f"{root.LANDING}/s.schema/t"
        for path in zone.folder("t").iterdir():
            if path.is_file():
                path.unlink()
        assert (zone.folder("t") / layout.CLEANUP / "a.parquet").exists()
        assert not is_remnant(zone.store, folder)

    def test_metadata_that_is_written_again_makes_nothing_anew(self, zone: Named) -> None:
        zone.describe(**BY_TIME, isUpsertDefaultRowMarker=True)
        zone.put("d.parquet", 4, 5)
        _done(zone.apply())
        assert zone.rows("t") == [(1,), (2,), (3,), (4,), (5,)]


TEXT = {"fileFormat": "delimitedText", "fileExtension": "csv"}


class TestDelimitedText:
    @pytest.fixture
    def texts(self, tmp_path: Path) -> Named:
        zone = Named(tmp_path / "root")
        zone.describe(**TEXT)
        for number in (1, 2, 3):
            zone.write(f"{number:020d}.csv", f"id,v\n{number},old\n")
        _done(zone.apply())
        return zone

    def test_each_file_is_acknowledged_by_its_number(self, texts: Named) -> None:
        texts.write(f"{4:020d}.csv", "id,v\n4,x\n")
        assert texts.told() == [
            *[(None, number, "applied", 0) for number in (1, 2, 3)],
            (None, 4, "waiting", None),
        ]

    def test_a_recreated_folder_makes_the_table_anew(self, texts: Named) -> None:
        shutil.rmtree(texts.folder("t"))
        texts.describe(**TEXT)
        texts.write(f"{1:020d}.csv", "id,v\n9,new\n")
        assert texts.told() == [(None, 1, "waiting", None)]
        _done(texts.apply())
        assert [tuple(map(str, row)) for row in texts.rows("t")] == [("9", "new")]

    def test_it_may_come_again_as_another_format(self, texts: Named) -> None:
        shutil.rmtree(texts.folder("t"))
        texts.describe()
        texts.put(f"{1:020d}.parquet", 5)
        _done(texts.apply())
        assert texts.rows("t") == [(5,)]

    def test_without_its_description_it_waits(self, texts: Named) -> None:
        shutil.rmtree(texts.folder("t"))
        texts.folder("t").mkdir()
        texts.write(f"{1:020d}.csv", "id,v\n9,new\n")
        _done(texts.apply())
        assert len(texts.rows("t")) == 3


@pytest.mark.parametrize("stream", [None, "[]", "{}", '{"format": 99}'])
def test_a_zone_that_cannot_be_marked_is_mirrored_and_drops_nothing(
    tmp_path: Path, stream: str | None
) -> None:
    zone = Named(tmp_path / "root")
    zone.describe(**BY_TIME)
    ours = zone.root / root.LANDING / "_mirrorlake"
    if stream is None:
        ours.write_text("not a folder")
    else:
        ours.mkdir()
        (ours / "stream.json").write_text(stream)
    zone.put("a.parquet", 1)
    _done(zone.apply())
    shutil.rmtree(zone.folder("t"))
    zone.wait()
    assert zone.rows("t") == [(1,)]
