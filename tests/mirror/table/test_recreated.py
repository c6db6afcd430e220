"""Recreated folders of others: what their numbers, sizes, times and ends tell."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from mirrorlake.errors import TableError
from mirrorlake.landing.file_identity import Identity
from mirrorlake.landing.layout import TableFolder
from mirrorlake.landing.scan import Landed, TableScan
from mirrorlake.mirror.table.recreated import likely_recreated
from tests.mirror.planning import FOLDER, TABLE, Situation, keyed, landed, load, made, of_ours

APPLIED = Identity(size=10, modified=0.0, tail="end")


@dataclass(frozen=True)
class Folder:
    """A folder of which file 5 was applied last. younger: files of a later time."""

    numbers: tuple[int, ...]
    moved: tuple[int, ...] = ()
    younger: tuple[int, ...] = ()
    size: int = 10
    tail: str = "end"
    applied: Identity | None = APPLIED

    def error(self) -> TableError | None:
        files = [
            replace(landed(n), modified=9.0 * (n in self.younger), size=self.size)
            for n in self.numbers
        ]
        scan = TableScan(
            table=TABLE,
            folder=TableFolder(TABLE, FOLDER),
            metadata=keyed("id"),
            files=tuple(files),
            error=None,
            moved=lambda: tuple(landed(n, f"{FOLDER}/_FilesReadyToDelete") for n in self.moved),
        )
        return likely_recreated(scan, replace(made(5), last=self.applied), self._tail)

    def _tail(self, _file: Landed) -> str:
        return self.tail


@pytest.mark.parametrize(
    "folder",
    [
        pytest.param(Folder(()), id="empty"),
        pytest.param(Folder((5,)), id="only the last one"),
        pytest.param(Folder((3, 4, 5, 6), moved=(1, 2)), id="not yet cleaned up"),
        pytest.param(Folder((6, 7)), id="the last one was taken away"),
        pytest.param(Folder((3,), moved=(5,)), id="another engine put the last one aside"),
        pytest.param(Folder((3, 5), moved=(1, 2)), id="an applied one was taken away"),
        pytest.param(Folder((5,), younger=(5,)), id="copied"),
        pytest.param(Folder((5,), younger=(5,), tail=""), id="gone meanwhile"),
        pytest.param(Folder((5,), size=11, applied=None), id="applied by an earlier release"),
        pytest.param(Folder((4, 5), younger=(4,)), id="landed out of order"),
    ],
)
def test_a_folder_that_was_not_recreated(folder: Folder) -> None:
    assert folder.error() is None


@pytest.mark.parametrize(
    ("folder", "told"),
    [
        pytest.param(Folder((1,)), "file 5, the last one applied, is missing", id="begun again"),
        pytest.param(Folder((1, 2, 6)), "is missing, while file 1 is there", id="with later files"),
        pytest.param(Folder((5,), size=11), "is not the file", id="another size"),
        pytest.param(Folder((5,), younger=(5,), tail="x"), "is not the file", id="another end"),
        pytest.param(Folder((1, 5), moved=(1, 2, 3, 4)), "file 1 was applied", id="one again"),
        pytest.param(
            Folder((4, 5), moved=(4,), younger=(4,)),
            "file 4 was applied",
            id="the one before the last again",
        ),
    ],
)
def test_a_folder_that_was_recreated(folder: Folder, told: str) -> None:
    error = folder.error()
    assert error is not None
    assert told in str(error)


@pytest.mark.clause("LZ-233")
def test_our_own_zone_is_recognized_by_its_generation() -> None:
    same = Situation({1: load()}, metadata=of_ours("g", "id"), progress=made(5)).plan()
    assert same.error is None
    other = Situation({1: load()}, metadata=of_ours("new", "id"), progress=made(5)).plan()
    assert (other.error, len(other.steps)) == (None, 2)


@pytest.mark.clause("LZ-251")
def test_no_file_of_a_recreated_folder_is_moved_or_applied() -> None:
    planned = Situation({1: load(), 2: load()}, progress=made(3)).plan()
    assert planned.steps == ()
    assert planned.error is not None
    assert planned.error.code == "foreign_table"
