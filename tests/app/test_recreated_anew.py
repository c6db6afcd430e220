"""Folders of others that are recreated: the table begins anew by itself, exactly once."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from mirrorlake.model.crash_points import CrashPoint
from tests.app.operated import Operated
from tests.app.zones import MARKER
from tests.doubles.memory_store import Crash

OLD = ["old", "old", "old"]
NEW = [(1, "new"), (2, "new")]


@pytest.fixture
def mirror(tmp_path: Path) -> Operated:
    """Three files applied: the last one is in the folder, the others were put aside."""
    mirror = Operated(tmp_path / "root")
    mirror.table("t", *OLD)
    mirror.once()
    assert mirror.files("t") == {3}
    return mirror


def recreate(mirror: Operated, *files: str) -> None:
    mirror.delete("t")
    mirror.table("t", *files)


def generation(mirror: Operated) -> str:
    table = mirror.mirrored("t")
    assert table is not None
    return table.generation


@pytest.mark.clause("LZ-222", "LZ-232", "LZ-233", "LZ-323")
class TestARecreatedFolder:
    @pytest.mark.parametrize("count", [1, 2, 3, 4])
    def test_its_table_is_made_anew_from_the_new_files(self, mirror: Operated, count: int) -> None:
        before = generation(mirror)
        recreate(mirror, *["new"] * count)
        assert not mirror.once().errors
        assert mirror.rows("t") == [(number, "new") for number in range(1, count + 1)]
        assert generation(mirror) != before

    def test_one_applied_file_and_one_new_file(self, tmp_path: Path) -> None:
        mirror = Operated(tmp_path)
        mirror.table("t", "old")
        mirror.once()
        recreate(mirror, "newer")
        assert not mirror.once().errors
        assert mirror.rows("t") == [(1, "newer")]

    def test_the_same_files_again_give_the_same_rows(self, mirror: Operated) -> None:
        before = generation(mirror)
        recreate(mirror, "old", "old")
        assert not mirror.once().errors
        assert mirror.rows("t") == [(1, "old"), (2, "old")]
        assert generation(mirror) != before

    def test_only_a_file_in_the_middle_is_another(self, mirror: Operated) -> None:
        recreate(mirror, "old", "new", "old")
        assert not mirror.once().errors
        assert mirror.rows("t") == [(1, "old"), (2, "new"), (3, "old")]

    def test_with_another_type_and_another_key(self, mirror: Operated) -> None:
        mirror.delete("t")
        mirror.zone.table("t", "v")
        mirror.zone.land("t", 1, {"id": ["text"], "v": [1.5]})
        assert not mirror.once().errors
        assert mirror.rows("t") == [("text", 1.5)]
        table = mirror.mirrored("t")
        assert table is not None
        assert table.key == ("v",)

    @pytest.mark.clause("LZ-216", "LZ-225")
    @pytest.mark.parametrize("names", [["id"], ["id", "other"]], ids=["dropped", "renamed"])
    def test_without_a_column_or_with_another_name(
        self, mirror: Operated, names: list[str]
    ) -> None:
        mirror.delete("t")
        mirror.zone.table("t", "id")
        mirror.zone.land("t", 1, {name: [7] for name in names})
        assert not mirror.once().errors
        table = mirror.mirrored("t")
        assert table is not None
        assert table.schema.names == names
        assert mirror.rows("t") == [(7,) * len(names)]

    @pytest.mark.clause("LZ-220", "LZ-221")
    def test_a_table_that_stopped_for_another_type_goes_on(self, mirror: Operated) -> None:
        retyped = {"id": [4], "v": [1.5]}
        mirror.zone.land("t", 4, retyped)
        mirror.land("t", 5)
        for _ in range(2):
            assert [error.code for error in mirror.once().errors] == ["SchemaMergeFailure"]
            assert mirror.rows("t") == [(1, "old"), (2, "old"), (3, "old")]
        mirror.delete("t")
        mirror.zone.table("t", "id")
        mirror.zone.land("t", 1, retyped)
        assert not mirror.once().errors
        mirror.zone.land("t", 2, {"id": [4, 5], "v": [2.5, 3.5], MARKER: [1, 0]})
        assert not mirror.once().errors
        assert mirror.rows("t") == [(4, 2.5), (5, 3.5)]

    def test_it_goes_on_with_changes(self, mirror: Operated) -> None:
        recreate(mirror, "new", "new")
        mirror.once()
        mirror.land("t", 3)
        assert not mirror.once().errors
        assert mirror.rows("t") == [*NEW, (3, "new")]

    def test_a_number_that_lacks_is_not_taken_from_the_old_files(self, mirror: Operated) -> None:
        """The publisher removed its files, and left the cleanup folder as it was."""
        for path in mirror.zone.folder("t").iterdir():
            if path.is_file():
                path.unlink()
        shutil.move(mirror.zone.folder("t"), mirror.root / "aside")
        mirror.zone.table("t", "id")
        shutil.move(mirror.root / "aside/_FilesReadyToDelete", mirror.zone.folder("t"))
        mirror.land("t", 1)
        mirror.land("t", 3)
        assert [error.code for error in mirror.once().errors] == ["missing_file"]
        assert mirror.rows("t") == [(1, "new")]
        mirror.land("t", 2)
        assert not mirror.once().errors
        assert mirror.rows("t") == [*NEW, (3, "new")]

    @pytest.mark.clause("LZ-119")
    def test_it_waits_for_its_first_file(self, mirror: Operated) -> None:
        mirror.delete("t")
        mirror.table("t")
        mirror.land("t", 2)
        assert "seems to be recreated" in str(mirror.once().errors[0])
        mirror.land("t", 1)
        assert not mirror.once().errors
        assert mirror.rows("t") == NEW


POINTS = [
    CrashPoint.PROCESSED_DISCARDED,
    CrashPoint.TABLE_CREATED,
    CrashPoint.BATCH_WRITTEN,
    CrashPoint.COMMIT_BEGUN,
    CrashPoint.COMMITTED,
    CrashPoint.COMMIT_DURABLE,
    CrashPoint.CLEANUP_MOVED_ONE,
]


@pytest.mark.clause("LZ-232", "LZ-326")
@pytest.mark.parametrize("point", POINTS)
def test_a_table_that_begins_anew_is_killed_and_has_each_row_once(
    mirror: Operated, point: CrashPoint
) -> None:
    for path in mirror.zone.folder("t").glob("*.*"):
        path.unlink()
    (mirror.zone.folder("t") / "_metadata.json").write_text('{"keyColumns": ["id"] }')
    mirror.land("t", 1)
    mirror.land("t", 2)

    def killed(reached: CrashPoint) -> None:
        if reached is point:
            raise Crash(str(point))

    loop = mirror.loop(killed)
    loop.open()
    with pytest.raises(Crash):
        loop.once()
    mirror.clock.advance(60)  # the lease of the dead ends
    mirror.land("t", 3)
    assert not mirror.once().errors
    assert mirror.rows("t") == [*NEW, (3, "new")]
    assert mirror.files("t") == {3}  # the last file stays
    table = mirror.mirrored("t")
    assert table is not None
    assert [number for run in table.applied for number in range(run[0], run[1] + 1)] == [1, 2, 3]


class TestAFolderThatOnlyLooksLikeIt:
    @pytest.fixture(autouse=True)
    def unchanged(self, mirror: Operated) -> object:
        before = generation(mirror)
        yield
        assert generation(mirror) == before

    def test_metadata_that_is_written_again(self, mirror: Operated) -> None:
        (mirror.zone.folder("t") / "_metadata.json").write_text('{"keyColumns": [ "id" ]}')
        mirror.land("t", 4)
        assert not mirror.once().errors

    def test_metadata_that_is_written_again_before_the_clean_up(self, mirror: Operated) -> None:
        folder = mirror.zone.folder("t")
        for path in (folder / "_FilesReadyToDelete").glob("*.parquet"):
            path.rename(folder / path.name)
        (folder / "_metadata.json").write_text('{"keyColumns": [ "id" ]}')
        assert not mirror.once().errors

    def test_a_copy_with_other_times(self, mirror: Operated) -> None:
        shutil.copytree(mirror.zone.folder("t"), mirror.root / "copy")
        shutil.rmtree(mirror.zone.folder("t"))
        shutil.move(mirror.root / "copy", mirror.zone.folder("t"))
        for path in mirror.zone.folder("t").rglob("*.*"):
            os.utime(path, (4e9, 4e9))
        mirror.land("t", 4)
        assert not mirror.once().errors

    @pytest.mark.clause("LZ-268")
    def test_a_processed_file_that_is_landed_again(self, mirror: Operated) -> None:
        mirror.land("t", 1)
        assert [error.code for error in mirror.once().errors] == ["foreign_table"]

    @pytest.mark.clause("LZ-268")
    def test_the_only_file_written_over(self, tmp_path: Path, mirror: Operated) -> None:
        other = Operated(tmp_path / "other")
        other.table("t", "old")
        other.once()
        other.land("t", 1, "newer")
        assert [error.code for error in other.once().errors] == ["foreign_table"]
        assert other.rows("t") == [(1, "old")]

    def test_a_folder_without_its_metadata_yet(self, mirror: Operated) -> None:
        recreate(mirror, "new")
        (mirror.zone.folder("t") / "_metadata.json").unlink()
        mirror.once()
        assert mirror.rows("t") == [(1, "old"), (2, "old"), (3, "old")]


@pytest.mark.clause("LZ-234")
def test_it_is_reseeding_until_its_first_file_is_applied(mirror: Operated) -> None:
    recreate(mirror, "new")

    def killed(reached: CrashPoint) -> None:
        if reached is CrashPoint.BATCH_WRITTEN:
            raise Crash(str(reached))

    loop = mirror.loop(killed)
    loop.open()
    with pytest.raises(Crash):
        loop.once()
    assert mirror.rows("t") == []
    mirror.clock.advance(60)
    states = [str(table.state) for table in mirror.loop()._planning.whole_plan(None)]
    assert states == ["Reseeding"]
    mirror.once()
    states = [str(table.state) for table in mirror.loop()._planning.whole_plan(None)]
    assert states == ["Replicating"]
    begun = mirror.operations("t")
    assert begun.index("StartReseeding") < begun.index("StartReplicating", 4)
