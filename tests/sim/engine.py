"""A modelled lake, and an engine that applies landed files to it by the reference.

Tables outlive the engines that write them. A commit is atomic and is refused unless the table is
at the version that the batch was computed on; around it answers get lost, rivals step in, and
processes end.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

import pyarrow as pa

from mirrorlake.apply.commit_metadata import by_marker, commit_metadata
from mirrorlake.delta.log.history import CommittedBatch, batch_of
from mirrorlake.delta.schema import FEED, MAPPING
from mirrorlake.landing.file_identity import Identity, first_changed
from mirrorlake.landing.parquet import reader as parquet
from mirrorlake.landing.parquet.unchanged import unpacked
from mirrorlake.mirror.engine import (
    AlreadyApplied,
    Applied,
    Conflicted,
    Counts,
    Failed,
    Outcome,
    Unknown,
)
from mirrorlake.mirror.faults import TableFault, UnreadableFile
from mirrorlake.mirror.steps import (
    AddColumns,
    AlterColumns,
    ApplyFiles,
    Compact,
    CreateTable,
    DropTable,
    RenameColumns,
    SetKey,
)
from mirrorlake.mirror.table.progress import DELETES, FOLDER, RESEEDED, SOFT, Progress
from mirrorlake.model.arrow import arrow_schema
from mirrorlake.model.change import (
    METADATA_COLUMNS,
    ROW_COMMIT_TIME,
    ROW_DELETED,
    ROW_POSITION,
    ROW_TRANSACTION,
)
from mirrorlake.model.crash_points import CrashHook, CrashPoint
from mirrorlake.model.keys import KeyRange
from mirrorlake.model.landed import BackfillChunk, NamedBatch
from mirrorlake.model.table import Schema
from mirrorlake.storage.store import Store
from tests.doubles.clock import START
from tests.reference import UNCHANGED, Change, Row, Table
from tests.sim import columns
from tests.sim.columns import Columns, Layout


@dataclass
class LakeTable:
    """A Delta table: its rows, its feed by version, and what it has recorded.

    named: in timestamp mode; forgotten: so many of these its log does not tell any more.
    altered: the number of the last file before which columns were altered; renamed_before, renamed:
    as of `Progress`.
    """

    generation: str
    detection: str
    schema: Schema
    key: tuple[str, ...]
    table: Table
    version: int = 0
    recorded: int = 0
    cut: int | None = None
    cuts: list[int | None] = field(default_factory=list)
    feed: list[Counter[tuple[str, Row]]] = field(default_factory=list)
    applied: list[tuple[int, int]] = field(default_factory=list)
    named: list[NamedBatch] = field(default_factory=list)
    forgotten: int = 0
    properties: dict[str, str] = field(default_factory=dict)
    batch: CommittedBatch | None = None
    identities: dict[str, Identity] = field(default_factory=dict)
    described: str = ""
    vacuumed: list[timedelta] = field(default_factory=list)
    commits: list[dict[str, Any]] = field(default_factory=list)
    backfilled: list[tuple[BackfillChunk, Counter[tuple[str, Row]]]] = field(default_factory=list)
    altered: int = 0
    renamed_before: int = 0
    renamed: dict[str, str] = field(default_factory=dict)
    whole_rows: bool | None = None
    columns: Columns = field(init=False)

    def __post_init__(self) -> None:
        self.columns = Columns.first(self.schema)

    def relay(self, layout: Layout, rows: list[Row], feed: Counter[tuple[str, Row]]) -> None:
        """Have other columns from the next version on, which is this."""
        self.columns.become(layout, len(self.feed))
        self.schema = layout.schema
        self.table = columns.relaid(self.table, layout, self.key, rows)
        self.feed.append(feed)
        self.version += 1


@dataclass
class Lake:
    tables: dict[str, LakeTable] = field(default_factory=dict)


@dataclass
class ModelledEngine:
    """A `MirrorEngine` on a modelled lake.

    between: called between a batch's preparation and its commit, where anything may happen.
    properties: of new tables.
    """

    lake: Lake
    store: Store
    random: Random
    reached: CrashHook
    between: Callable[[], None] = lambda: None
    lost_answers: float = 0.1
    lost_alterations: float = 0.0
    properties: Mapping[str, str] = field(default_factory=dict)
    wall: Callable[[], datetime] = lambda: START
    checkpoints: list[str] = field(default_factory=list)
    _told: dict[str, Progress] = field(default_factory=dict)

    def progress(self, path: str) -> Progress:
        """The same object as long as it is the same, as true engines have it."""
        told, known = self._progress(path), self._told.get(path)
        if known is None or told != known:
            known = self._told[path] = told
        return known

    def _progress(self, path: str) -> Progress:
        table = self.lake.tables.get(path)
        if table is None:
            return Progress()
        return Progress(
            version=table.version,
            generation=table.generation,
            detection=table.detection,
            recorded=table.recorded,
            schema=table.schema,
            key=table.key,
            properties={FEED: "true", **table.properties},
            batch=table.batch,
            last=table.identities.get("last"),
            begin=table.identities.get("begin"),
            described=table.described,
            altered=table.altered,
            renamed_before=table.renamed_before,
            renamed=table.renamed,
            whole_rows=table.whole_rows,
        )

    def named_batches(self, path: str, after: int) -> Sequence[NamedBatch]:
        table = self.lake.tables[path]
        return [batch for batch in table.named[table.forgotten :] if batch.number > after]

    def creates_with_batch(self, step: CreateTable) -> bool:
        return self.random.random() < 0.5 and step.path not in self.lake.tables

    def create(self, step: CreateTable) -> None:
        if step.path not in self.lake.tables or step.replace:
            self.lake.tables[step.path] = self._made(step)
        self.reached(CrashPoint.TABLE_CREATED)

    def _made(self, step: CreateTable) -> LakeTable:
        key = tuple(step.schema.names.index(name) for name in step.key)
        names = step.schema.names
        said = tuple(n for n, name in enumerate(names) if name in METADATA_COLUMNS)
        flag = names.index(ROW_DELETED) if step.soft else None
        table = Table(key, metadata=said, soft=flag)
        made = LakeTable(step.generation, step.detection, step.schema, step.key, table)
        made.properties = {FOLDER: step.folder} | ({RESEEDED: "true"} if step.replace else {})
        made.properties |= {DELETES: SOFT} if step.soft else {}
        made.properties |= self.properties
        return made

    def paths(self, known: Collection[str] = ()) -> list[str]:
        return [path for path in self.lake.tables if path not in known]

    def drop(self, step: DropTable) -> None:
        if self.progress(step.path).generation == step.generation:
            del self.lake.tables[step.path]
        self.reached(CrashPoint.TABLE_DROPPED)

    def vacuum(self, path: str, retention: timedelta, before_commit: Callable[[], None]) -> None:
        before_commit()
        self.lake.tables[path].vacuumed.append(retention)

    def add_columns(self, step: AddColumns) -> None:
        table = self.lake.tables[step.path]
        if new := [column for column in step.columns if column.name not in table.schema]:
            layout = table.columns.now.with_new(new, table.columns.last)
            nothing = (None,) * len(new)
            table.relay(layout, [(*row, *nothing) for row in table.table.rows], Counter())
        self.reached(CrashPoint.COLUMNS_ADDED)

    def rename_columns(self, step: RenameColumns, before_commit: Callable[[], None]) -> None:
        read = self.progress(step.path)
        if read.renamed_before >= step.number:
            return
        before_commit()
        self.between()
        table = self.lake.tables[step.path]
        if table.version != read.version or table.generation != read.generation:
            raise TableFault("another writer was faster", table=str(step.table), hint="")
        assert table.properties[MAPPING] == "name"
        layout = table.columns.now.renamed(step.names)
        if step.key is not None:
            table.key = tuple(step.names.get(name, name) for name in step.key)
            table.whole_rows = step.whole_rows
        table.relay(layout, table.table.rows, Counter())
        table.renamed_before, table.renamed = step.number, dict(step.names)
        if self.random.random() < self.lost_alterations:
            raise TableFault("no answer", table=str(step.table), hint="")
        self.reached(CrashPoint.COLUMNS_RENAMED)

    def alter_columns(self, step: AlterColumns, before_commit: Callable[[], None]) -> None:
        read = self.progress(step.path)
        is_done = read.altered >= step.number
        if is_done and not (step.types or step.dropped):
            return
        if is_done:
            step = replace(step, copied={}, filled=None, converted=frozenset())
        self.reached(CrashPoint.COLUMNS_WRITTEN)
        before_commit()
        self.between()
        table = self.lake.tables[step.path]
        if table.version != read.version or table.generation != read.generation:
            raise TableFault("another writer was faster", table=str(step.table), hint="")
        before = table.columns.now
        layout = before.altered(step.types, step.dropped)
        rows, feed = columns.altered(table.table.rows, before, layout, step)
        if step.key is not None:
            table.key, table.whole_rows = step.key, step.whole_rows
        table.relay(layout, rows, feed)
        table.altered = max(table.altered, step.number)
        if self.random.random() < self.lost_alterations:
            raise TableFault("no answer", table=str(step.table), hint="")
        self.reached(CrashPoint.COLUMNS_ALTERED)

    def set_properties(self, path: str, properties: Mapping[str, str]) -> None:
        table = self.lake.tables[path]
        table.properties |= properties
        table.feed.append(Counter())
        table.version += 1
        self.reached(CrashPoint.PROPERTIES_SET)

    def set_key(self, step: SetKey) -> None:
        raise AssertionError("no table of the simulation gets a key")

    def apply(
        self, steps: Sequence[ApplyFiles], before_commit: Callable[[], None]
    ) -> Sequence[Outcome]:
        prepared = [(step, self.progress(step.path), self._found(step)) for step in steps]
        self.reached(CrashPoint.BATCH_WRITTEN)
        return [
            found if isinstance(found, Failed) else self._commit(step, read, found, before_commit)
            for step, read, found in prepared
        ]

    def compact(
        self, steps: Sequence[Compact], before_commit: Callable[[], None]
    ) -> Sequence[Outcome | None]:
        return [None for _step in steps]  # a modelled table has no files

    slots = 1

    def compaction(self, path: str) -> Compact | None:
        return None  # a modelled table has no files

    def checkpoint(self, path: str) -> None:
        self.checkpoints.append(path)

    def make_durable(self, path: str, version: int) -> None:
        self.reached(CrashPoint.COMMIT_DURABLE)

    def _commit(
        self,
        step: ApplyFiles,
        read: Progress,
        files: list[list[Change]],
        before_commit: Callable[[], None],
    ) -> Outcome:
        if read.recorded >= step.last:
            return AlreadyApplied(read.recorded)
        if read.recorded != step.first - 1:
            return Conflicted("the batch does not follow")
        if step.names and (file := first_changed(self.store, step.files)):
            return Conflicted(f"{file.name} changed while it was read")
        before_commit()
        self.reached(CrashPoint.COMMIT_BEGUN)
        self.between()
        if step.creates is not None and not read.exists and step.path not in self.lake.tables:
            self.lake.tables[step.path] = self._made(step.creates)
            read = self.progress(step.path)
        table = self.lake.tables[step.path]
        if table.version != read.version or table.generation != read.generation:
            return Conflicted("another writer was faster")
        feed: Counter[tuple[str, Row]] = Counter()
        changes = [change for one in files for change in one]
        if step.backfill:
            feed += _corrected(table, step.backfill.keys, changes, whole=step.whole_rows)
            table.backfilled.append((step.backfill, feed))
            changes = []
        if step.truncated:
            feed += table.table.truncate(_said(table, step))
        if changes:
            apply = table.table.apply_whole if step.whole_rows else table.table.apply
            feed += apply(changes)
        table.version += 1
        table.recorded, table.cut = step.last, step.evidence.cut
        table.cuts.append(step.evidence.cut)
        table.feed.append(feed)
        table.applied.append((step.first, step.last))
        if step.names:
            table.named.append(NamedBatch(step.last, table.version, step.names))
        counts = _counts(feed)
        self._sign(table, step, read, counts, files)
        self.reached(CrashPoint.COMMITTED)
        if self.random.random() < self.lost_answers:
            recorded = self.progress(step.path).recorded
            return AlreadyApplied(recorded) if self.random.random() < 0.5 else Unknown("no answer")
        return Applied(table.version, counts)

    def _sign(
        self,
        table: LakeTable,
        step: ApplyFiles,
        before: Progress,
        counts: Counts,
        files: list[list[Change]],
    ) -> None:
        """Keep what the commit says of itself."""
        read = [by_marker(pa.array([change.marker for change in one], pa.int8())) for one in files]
        said = commit_metadata(
            step, before, counts, read, lambda file: Identity.of(self.store, file)
        )
        now = self.wall().timestamp() * 1000
        info = {"timestamp": now, "userMetadata": json.dumps(said)}
        table.commits.append(info)
        table.batch = batch_of(table.version, info)
        table.identities = {n: Identity.parse(said[n]) for n in ("last", "begin") if n in said}
        table.described = said.get("described", "")

    def _found(self, step: ApplyFiles) -> list[list[Change]] | Failed:
        try:
            return self._read(step)
        except FileNotFoundError as error:
            name = str(error).rpartition("/")[2]
            return Failed(UnreadableFile("it is gone", table=str(step.table), file=name))

    def _read(self, step: ApplyFiles) -> list[list[Change]]:
        """The changes of each file."""
        table = self.lake.tables.get(step.path)
        if table is None:
            assert step.creates is not None
            table = self._made(step.creates)
        return [self._rows(step, table, file.path) for file in step.files]

    def _rows(self, step: ApplyFiles, table: LakeTable, path: str) -> list[Change]:
        with self.store.open(path) as handle:
            rows = parquet.read(
                handle, 1, table.schema, step.default, table=str(step.table), file=path
            )
        flag = {ROW_DELETED: False} if step.soft else {}
        stands = {n: table.schema.names.index(name) for n, name in enumerate(rows.names)}
        values = [list((row | flag).values()) for row in rows.data.to_pylist()]
        if rows.unchanged is not None:
            for row, mask in zip(values, unpacked(rows.unchanged, len(rows.names)), strict=True):
                for index in mask.nonzero()[0]:
                    row[stands[index]] = UNCHANGED
        markers = rows.marker.to_pylist()
        return [Change(m, tuple(row)) for m, row in zip(markers, values, strict=True)]


def _said(table: LakeTable, step: ApplyFiles) -> dict[int, Any]:
    """What rows say that a truncation deletes."""
    assert not step.soft or not step.files, "a truncation is a batch by itself"
    at, time = step.evidence.positions, step.evidence.source_time
    said = {ROW_POSITION: at[1] if at else None, ROW_TRANSACTION: None, ROW_COMMIT_TIME: time}
    return {table.schema.names.index(n): v for n, v in said.items() if n in table.schema}


def _corrected(
    mirrored: LakeTable, keys: KeyRange, changes: Sequence[Change], *, whole: bool
) -> Counter[tuple[str, Row]]:
    """Apply a chunk of a backfill, perhaps of a table without ranges. whole: all columns are the
    key."""
    table, names, hashes = mirrored.table, mirrored.schema.names, keys.hashes
    schema = arrow_schema(mirrored.schema)

    def has_hash(row: Row) -> bool:
        assert hashes is not None
        one = pa.Table.from_pylist([dict(zip(names, row, strict=True))], schema)
        return bool(hashes.contains(one)[0])

    is_of = None if hashes is None else has_hash
    if whole:
        return table.backfill_whole(changes, is_of)
    return backfilled(table, names, keys, changes, is_of)


def backfilled(
    table: Table,
    names: Sequence[str],
    keys: KeyRange,
    changes: Sequence[Change],
    is_of: Callable[[Row], bool] | None = None,
) -> Counter[tuple[str, Row]]:
    """Apply a chunk of a backfill. names: of the columns; is_of: as of `Table.backfill`."""
    low, high = (
        None if bound is None else tuple(column[0].as_py() for column in bound.columns)
        for bound in (keys.low, keys.high)
    )
    least, below = (
        None if bound is None else bound.columns[0][0].as_py() for bound in (keys.least, keys.below)
    )
    limits = (names.index(keys.limited) if keys.limited else 0, least, below)
    return table.backfill(changes, low, high, is_closed=keys.is_closed, limits=limits, is_of=is_of)


def _counts(feed: Counter[tuple[str, Row]]) -> Counts:
    kinds: Counter[str] = Counter()
    for (kind, _row), count in feed.items():
        kinds[kind] += count
    return Counts(kinds["insert"], kinds["update_postimage"], kinds["delete"])


def replayed(table: LakeTable) -> Counter[Row]:
    """The rows that the feed of all versions leaves."""
    return columns.replayed(table.feed, table.columns)
