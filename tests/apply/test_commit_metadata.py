"""What a commit says of its batch: small, and enough for every later view."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.apply.commit_metadata import RUNS, by_marker, commit_metadata
from mirrorlake.delta.log.history import CommittedBatch, batch_of
from mirrorlake.landing.file_identity import Identity
from mirrorlake.landing.scan import Landed
from mirrorlake.mirror.engine import Counts
from mirrorlake.mirror.steps import ApplyFiles, Evidence
from mirrorlake.mirror.table.progress import Progress
from mirrorlake.model.applied import FileRows, Totals, in_runs
from mirrorlake.model.change import Marker
from mirrorlake.model.keys import KeyRange
from mirrorlake.model.landed import BackfillChunk
from tests.mirror.planning import FOLDER, PATH, TABLE, landed, made

counts = st.tuples(*[st.integers(0, 10**12)] * 4)


def step(first: int, last: int, begin: int | None = None) -> ApplyFiles:
    files = tuple(landed(number) for number in range(begin or first, last + 1))
    return ApplyFiles(TABLE, PATH, FOLDER, files, first, last, ("id",), Marker.INSERT)


def identity(file: Landed) -> Identity:
    return Identity(file.number, 0.0, "end")


def batch(said: object, version: int = 1) -> CommittedBatch:
    found = batch_of(version, {"timestamp": 0, "userMetadata": json.dumps(said)})
    assert found is not None
    return found


@given(st.lists(st.sampled_from(list(Marker))))
def test_rows_are_counted_by_marker(markers: list[Marker]) -> None:
    found = by_marker(pa.array([int(marker) for marker in markers], pa.int8()))
    assert found == tuple(markers.count(marker) for marker in Marker)


@given(st.lists(counts, min_size=1, max_size=300), st.integers(0, 3), st.integers(1, 50))
def test_runs_contain_every_file_and_row_once(
    read: list[tuple[int, int, int, int]], unread: int, most: int
) -> None:
    files = [FileRows(n, n, None) for n in range(1, unread + 1)]
    files += [FileRows(n, n, rows) for n, rows in enumerate(read, unread + 1)]
    runs = in_runs(files, most)
    assert len([run for run in runs if run.rows is not None]) <= most
    numbers = [number for run in runs for number in range(run.first, run.last + 1)]
    assert numbers == [file.first for file in files]
    total = [sum(run.rows[i] for run in runs if run.rows) for i in range(4)]
    assert total == [sum(rows[i] for rows in read) for i in range(4)]


@given(st.integers(1, 10**18), counts)
def test_a_run_is_read_as_it_was_written(first: int, rows: tuple[int, int, int, int]) -> None:
    for run in (FileRows(first, first + 5, rows), FileRows(first, first, None)):
        assert FileRows.parse(json.loads(json.dumps(run.as_record()))) == run


def test_the_commit_of_a_huge_batch_stays_small() -> None:
    read = [(10**9, 10**9, 10**9, 10**9)] * 2_000
    said = commit_metadata(step(1, 2_000), Progress(), Counts(), read, identity)
    assert len(said["read"]) == RUNS
    assert len(json.dumps(said)) < 20_000


def test_the_commit_of_a_chunk_says_which_backfill_it_was() -> None:
    chunk = replace(step(5, 5), backfill=BackfillChunk("b1", 3, KeyRange()))
    said = commit_metadata(chunk, made(4), Counts(), [(1, 0, 0, 0)], identity)
    assert said["backfill"] == {"id": "b1", "chunk": 3}
    assert "backfill" not in commit_metadata(
        step(5, 5), made(4), Counts(), [(1, 0, 0, 0)], identity
    )


def test_files_before_a_truncation_are_a_run_without_rows() -> None:
    said = commit_metadata(step(4, 7, begin=7), made(3), Counts(), [(1, 0, 0, 0)], identity)
    assert batch(said).files == (FileRows(4, 6, None), FileRows(7, 7, (1, 0, 0, 0)))


@pytest.mark.clause("LZ-266")
@given(st.lists(st.tuples(*[st.integers(0, 1000)] * 5), min_size=1, max_size=8))
def test_totals_are_carried_from_commit_to_commit(numbers: list[tuple[int, ...]]) -> None:
    progress = made(0)
    for number, one in enumerate(numbers, start=1):
        insert, update, delete, duplicates, size = one
        said = commit_metadata(
            replace(step(number, number), evidence=Evidence(landed_bytes=size)),
            progress,
            Counts(insert, update, delete, duplicates),
            [(0, 0, 0, 0)],
            identity,
        )
        progress = replace(made(number), batch=batch(said, number))
    assert progress.batch is not None
    assert progress.batch.total == Totals(*(sum(column) for column in zip(*numbers, strict=True)))
    assert progress.batch.total.rows == sum(sum(one[:3]) for one in numbers)


class TestFolderIdentity:
    def test_the_first_file_is_remembered_in_every_commit(self) -> None:
        said = commit_metadata(step(1, 2), made(0), Counts(), [(0, 0, 0, 0)] * 2, identity)
        assert (said["begin"]["size"], said["last"]["size"]) == (1, 2)
        progress = replace(made(2), begin=Identity.parse(said["begin"]))
        later = commit_metadata(step(3, 3), progress, Counts(), [(0, 0, 0, 0)], identity)
        assert (later["begin"], later["last"]["size"]) == (said["begin"], 3)

    def test_a_missing_file_is_not_recorded(self) -> None:
        said = commit_metadata(step(1, 1), made(0), Counts(), [(0, 0, 0, 0)], lambda _file: None)
        assert not {"begin", "last"} & set(said)

    def test_our_own_zone_records_no_identities(self) -> None:
        ours = replace(
            step(1, 1), evidence=Evidence(positions=("0/1:1", "0/1:1"), described="etag")
        )
        said = commit_metadata(ours, made(0), Counts(), [(0, 0, 0, 0)], identity)
        assert not {"begin", "last", "described"} & set(said)


@pytest.mark.parametrize("read", [[[1]], [["a", 1]], [[1, 1, 0]], 7, [None]])
def test_foreign_commit_metadata_is_not_a_batch(read: object) -> None:
    said = {"mirrorlake": 1, "files": [1, 1], "rows": {"insert": 0, "update": 0, "delete": 0}}
    assert batch(said).files == ()
    info = {"timestamp": 0, "userMetadata": json.dumps(said | {"read": read})}
    assert batch_of(1, info) is None
