"""A table that an engine keeps, with landed files that the test writes."""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlake.delta.schema import FeedMode
from mirrorlake.landing.metadata import BY_TIME, SEQUENTIAL
from mirrorlake.landing.parquet import reader as parquet
from mirrorlake.landing.scan import Landed, data_files
from mirrorlake.mirror.engine import Applied, MirrorEngine, Outcome
from mirrorlake.mirror.steps import (
    AddColumns,
    ApplyFiles,
    Compact,
    CreateTable,
    Estimate,
    Evidence,
)
from mirrorlake.model.change import MARKER_COLUMN, ROW_DELETED, Marker
from mirrorlake.model.landed import FileName
from mirrorlake.model.table import Column, Schema, TableId
from mirrorlake.storage.local import LocalStore
from tests.histories import Landing, Shape, as_file
from tests.reference import Change, Row

File = bytes | pa.Table | Sequence[tuple[int, Row]]
"""A landed file: its content, its columns, or its markers and rows."""

GENERATION = "3f6d0f0c-8d8a-4d6c-9a55-3c1df1a5b7a1"


Feeds = dict[int, Counter[tuple[str, Row]]]
"""A change feed by version: how often each (change type, plain row). Versions without any are
absent."""


class Reader(Protocol):
    """Reads the tables of an engine."""

    def rows(self, path: str) -> list[Row]: ...

    def feed(self, path: str) -> Feeds: ...

    def tables(self, paths: Sequence[str]) -> list[tuple[list[Row], Feeds]]:
        """Rows and feeds of several tables."""
        ...

    def commit(self, path: str, version: int) -> dict[str, Any]:
        """What a commit says of itself, its `userMetadata` as text among it."""
        ...


@dataclass
class Mirrored:
    """A table at `path`, whose next file has the number `recorded` + 1."""

    engine: MirrorEngine
    store: LocalStore
    reader: Reader
    shape: Shape
    path: str = "Tables/orders"
    recorded: int = 0

    @property
    def table(self) -> TableId:
        return TableId.parse(self.path.removeprefix("Tables/").replace("/", "."))

    @property
    def folder(self) -> str:
        return self.path.replace("Tables", "zone")

    def create(
        self,
        *,
        replace: bool = False,
        generation: str = GENERATION,
        required: tuple[str, ...] = (),
        detection: str = SEQUENTIAL,
        soft: bool = False,
        feed: FeedMode = FeedMode.IMAGES,
    ) -> Mirrored:
        self.engine.create(
            self.creation(
                replace=replace,
                generation=generation,
                required=required,
                detection=detection,
                soft=soft,
                feed=feed,
            )
        )
        return self

    def creation(self, *, generation: str = GENERATION, **more: Any) -> CreateTable:
        """The step that creates the table."""
        schema, key = self.shape.schema, self.shape.key
        return CreateTable(self.table, self.path, self.folder, schema, key, generation, **more)

    def add_columns(self, *columns: Column) -> None:
        self.engine.add_columns(AddColumns(self.table, self.path, columns))
        new = [column for column in columns if column.name not in self.shape.schema]
        self.shape = Shape(Schema.of([*self.shape.schema, *new]), self.shape.key)

    def land(self, number: int, file: File) -> Landed:
        """Write a landed file under its number, which is its time too: commits of tables that got
        the same files say the same."""
        name = FileName(number)
        self.write(str(name), file)
        os.utime(self.store.location(f"{self.folder}/{name}"), (number, number))
        (found,) = (e for e in self.store.list(self.folder).files if e.name == str(name))
        return Landed(name, self.folder, found.size, found.modified, found.etag)

    def write(self, name: str, file: File) -> int:
        """Write a file into the folder. Returns its size."""
        path = Path(self.store.location(f"{self.folder}/{name}"))
        path.parent.mkdir(parents=True, exist_ok=True)
        if not isinstance(file, bytes | pa.Table):
            file = as_file(self.shape, [Change(marker, row) for marker, row in file])
            if ROW_DELETED in file.column_names:  # which the mirror adds
                file = file.drop_columns([ROW_DELETED])
        path.write_bytes(file if isinstance(file, bytes) else content(file))
        return path.stat().st_size

    def step(self, *files: File, truncated: bool = False, **more: Any) -> ApplyFiles:
        """The next files in one batch; after a truncation, which is a file of its own."""
        first = self.recorded + 1
        landed = [self.land(first + truncated + n, file) for n, file in enumerate(files)]
        return ApplyFiles(
            table=self.table,
            path=self.path,
            folder=self.folder,
            files=tuple(landed),
            first=first,
            last=self.recorded + truncated + len(files),
            key=self.shape.key,
            truncated=truncated,
            evidence=Evidence(**_own(Evidence, more)),
            estimate=Estimate(**_own(Estimate, more)),
            **({"default": Marker.INSERT} | more),
        )

    def named_step(self, files: Mapping[str, File]) -> ApplyFiles:
        """Files under any names, landed in this order, as the next batch in timestamp mode."""
        for name, file in files.items():
            self.write(name, file)
        listed = data_files(self.folder, self.store.list(self.folder), detection=BY_TIME)
        return ApplyFiles(
            table=self.table,
            path=self.path,
            folder=self.folder,
            files=tuple(file for name in files for file in listed if str(file.name) == name),
            first=self.recorded + 1,
            last=self.recorded + 1,
            key=self.shape.key,
            default=Marker.INSERT,
            names=tuple(files),
        )

    def run(self, step: ApplyFiles, before_commit: Callable[[], None] = lambda: None) -> Outcome:
        (outcome,) = self.engine.apply([step], before_commit)
        if isinstance(outcome, Applied):
            self.recorded = step.last
        return outcome

    def apply(self, *files: File, **more: Any) -> Applied:
        """Apply the next files in one batch."""
        outcome = self.run(self.step(*files, **more))
        assert isinstance(outcome, Applied), outcome
        return outcome

    def compact(self, before_commit: Callable[[], None] = lambda: None) -> Outcome | None:
        """Compact the files of the table, if there is a need."""
        (outcome,) = self.engine.compact([Compact(self.table, self.path)], before_commit)
        return outcome

    def step_of(self, landing: Landing) -> ApplyFiles:
        """The next batch of a history."""
        files = [[(c.marker, c.row) for c in changes] for changes in landing.files]
        return self.step(*files, truncated=landing.truncate)

    def rows(self) -> list[Row]:
        return self.reader.rows(self.path)

    def feed(self, version: int) -> Counter[tuple[str, Row]]:
        return self.reader.feed(self.path).get(version, Counter())


def content(file: pa.Table, **options: Any) -> bytes:
    """The content of a Parquet file."""
    target = io.BytesIO()
    pq.write_table(file, target, **options)
    return target.getvalue()


def shape_of(file: pa.Table, key: Iterable[str], **options: Any) -> Shape:
    """The table that a landed file would make."""
    raw = content(file, **options)
    found = parquet.inspect(io.BytesIO(raw), len(raw), table="t", file="f")
    return Shape(found.schema, tuple(key))


def marked(file: pa.Table, marker: int = Marker.UPSERT) -> pa.Table:
    """The file with this marker on every row."""
    return file.append_column(MARKER_COLUMN, pa.array([int(marker)] * file.num_rows, pa.int8()))


def _own(kind: type[Any], more: dict[str, Any]) -> dict[str, Any]:
    """Takes out what is a field of this kind."""
    return {one.name: more.pop(one.name) for one in fields(kind) if one.name in more}
