"""A table as the plan sees it, made by hand: what is landed, and what is recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mirrorlake.delta.schema import FeedMode
from mirrorlake.errors import TableError
from mirrorlake.landing.layout import TableFolder
from mirrorlake.landing.metadata import Metadata, OurMetadata
from mirrorlake.landing.parquet.reader import Inspected
from mirrorlake.landing.scan import Landed, TableScan
from mirrorlake.mirror.batch import Run
from mirrorlake.mirror.batch_limits import BatchLimits
from mirrorlake.mirror.plan import candidates, plan
from mirrorlake.mirror.row_checks import RowChecks
from mirrorlake.mirror.settings import MirrorSettings, TableOptions
from mirrorlake.mirror.steps import ApplyFiles, CleanUp, Step, TablePlan
from mirrorlake.mirror.table.known_table import CutTarget, KnownTable
from mirrorlake.mirror.table.progress import Progress
from mirrorlake.model.change import Alteration, SchemaChangeKind
from mirrorlake.model.keys import KeyRange
from mirrorlake.model.landed import BackfillChunk, FileKind, FileName, Footer
from mirrorlake.model.table import Column, Schema, TableId
from mirrorlake.model.types import DataType

TABLE = TableId("sales", "orders")
FOLDER = "Files/LandingZone/sales.schema/orders"
PATH = "Tables/sales/orders"
NEW = "generation-of-a-new-table"


def columns(**types: str) -> Schema:
    return Schema.of([Column(name, DataType.parse(text)) for name, text in types.items()])


PLAIN = columns(id="integer", note="string")


def landed(number: int, folder: str = FOLDER) -> Landed:
    return Landed(FileName(number), folder, 10, 0.0, f"etag-{number}")


def footer(
    kind: FileKind, *, complete: bool = True, first: str = "0/1:1", last: str = "0/1:1"
) -> Footer:
    return Footer("stream", kind, first, last, complete)


def foreign(schema: Schema = PLAIN, *, marker: bool = True, rows: int = 1) -> Inspected:
    """A file of another publisher."""
    return Inspected(schema, rows, 100 * rows, marker, has_unchanged=False, footer=None)


def backfill(schema: Schema = PLAIN) -> Inspected:
    """A chunk of a backfill."""
    said = replace(footer(FileKind.BACKFILL), backfill=BackfillChunk("one", 1, KeyRange()))
    return replace(foreign(schema), footer=said)


def changes(
    schema: Schema = PLAIN, *, complete: bool = True, rows: int = 1, **positions: str
) -> Inspected:
    """A file of changes of ours."""
    said = footer(FileKind.CHANGES, complete=complete, **positions)
    return replace(foreign(schema, rows=rows), footer=said)


def altering(alteration: Alteration, schema: Schema = PLAIN, **options: Any) -> Inspected:
    """A file of ours before the first row of which the columns were altered."""
    found = changes(schema, **options)
    assert found.footer is not None
    return replace(found, footer=replace(found.footer, alteration=alteration))


def load(schema: Schema = PLAIN, *, complete: bool = True, rows: int = 1) -> Inspected:
    said = footer(FileKind.LOAD, complete=complete)
    return replace(foreign(schema, marker=False, rows=rows), footer=said)


def truncation(*, complete: bool = True, **positions: str) -> Inspected:
    said = footer(FileKind.TRUNCATE, complete=complete, **positions)
    return replace(foreign(rows=0), footer=said)


def keyed(*key: str, **members: Any) -> Metadata:
    return Metadata(key_columns=key, **members)


def of_ours(generation: str, *key: str) -> Metadata:
    return Metadata(key_columns=key, ours=OurMetadata(generation, "orders"))


def made(
    recorded: int = 0,
    schema: Schema = PLAIN,
    key: Sequence[str] = ("id",),
    feed: FeedMode = FeedMode.IMAGES,
) -> Progress:
    """A table that exists."""
    return Progress(
        version=recorded,
        generation="g",
        recorded=recorded,
        schema=schema,
        key=tuple(key),
        properties=dict(feed.properties),
    )


@dataclass(frozen=True)
class Situation:
    """files, moved: by number, in the table folder and in its cleanup folder."""

    files: Mapping[int, Inspected | TableError] = field(default_factory=dict)
    moved: Mapping[int, Inspected | TableError] = field(default_factory=dict)
    metadata: Metadata | None = field(default_factory=lambda: keyed("id"))
    progress: Progress = field(default_factory=Progress)
    target: CutTarget = field(default_factory=CutTarget)
    limits: BatchLimits = field(default_factory=BatchLimits)
    metadata_required: bool = True
    row_checks: RowChecks = field(default_factory=RowChecks)
    stops_at: frozenset[SchemaChangeKind] = frozenset()
    ignores: bool = False
    drops: bool = False
    renames: bool = False
    widens: bool = False
    soft: bool = False
    options: TableOptions = field(default_factory=TableOptions)
    platform: str = ""
    error: TableError | None = None

    @property
    def known(self) -> KnownTable:
        aside = f"{FOLDER}/_FilesReadyToDelete"
        scan = TableScan(
            table=TABLE,
            folder=TableFolder(TABLE, FOLDER),
            metadata=self.metadata,
            files=tuple(landed(number) for number in sorted(self.files)),
            error=self.error,
            moved=lambda: tuple(landed(number, aside) for number in sorted(self.moved)),
        )
        return KnownTable(
            scan,
            PATH,
            self.progress,
            MirrorSettings(
                metadata_required=self.metadata_required,
                limits=self.limits,
                row_checks=self.row_checks,
                stops_at=self.stops_at,
                ignores_new_columns=self.ignores,
                drops_columns=self.drops,
                renames_columns=self.renames,
                widens_types=self.widens,
                soft_deletes=self.soft,
                tables={str(TABLE): self.options},
            ),
            self.target,
            platform=self.platform,
        )

    def candidates(self) -> Run:
        return candidates(self.known)

    def plan(self) -> TablePlan:
        run = self.candidates()
        found = {
            file.path: (self.moved if "_FilesReadyToDelete" in file.path else self.files)[
                file.number
            ]
            for file in run.files
        }
        return plan(self.known, run, found, NEW)


def applied(planned: TablePlan) -> ApplyFiles:
    """The one batch of a plan."""
    (step,) = [step for step in planned.steps if isinstance(step, ApplyFiles)]
    return step


def batch(planned: TablePlan) -> tuple[int, int]:
    """The first and the last number of the one batch of a plan."""
    step = applied(planned)
    return step.first, step.last


def kinds(planned: TablePlan) -> list[type[Step]]:
    return [type(step) for step in planned.steps]


def moved_aside(planned: TablePlan) -> list[int]:
    return [
        file.number for step in planned.steps if isinstance(step, CleanUp) for file in step.files
    ]
