"""A Delta table that is built from the change feed of another table, with its progress.

Each commit covers whole commits of the source and records the last of them, together with the rows
(CF-193, CF-201). A commit succeeds only on the version for which its rows were computed, and only
when that version has recorded the directly preceding source version: nothing is applied twice or
skipped, with several builders of the same table, and after a crash at any point.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mirrorlake.delta.log.table_log import BrokenLog, TableLog, TableSnapshot
from mirrorlake.delta.schema import BUILT_FROM, TableSchema, parse
from mirrorlake.delta.workspace import TableWorkspace, open_workspace
from mirrorlake.delta.write import flush
from mirrorlake.delta.write.durable_commit import durable_commit, flush_names
from mirrorlake.delta.write.table_metadata import PROTOCOL, metadata, widened
from mirrorlake.errors import FeedTargetError
from mirrorlake.mirror.schema_evolution import needs_mapping
from mirrorlake.mirror.strategy import TableFacts
from mirrorlake.mirror.table.progress import MALFORMED
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from mirrorlake.model.table import Column, Schema
from mirrorlake.model.types import DataType
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.urls import is_url

APPLICATION = "mirrorlake-feed/"
"""The prefix of the application ids of targets, followed by the id of the source table."""

CLOCK = "/clock"
"""The suffix of an application id that records the latest time of a history, in microseconds."""

FEED = "delta.enableChangeDataFeed"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class SourceColumns:
    """The columns of a source known to the target, with their physical names, which identify
    renamed columns."""

    columns: tuple[Column, ...]
    physical: tuple[str, ...]

    @classmethod
    def of(cls, schema: TableSchema) -> SourceColumns:
        return cls(schema.schema.columns, schema.physical)

    @classmethod
    def parse(cls, record: Sequence[Sequence[Any]]) -> SourceColumns:
        """Raises ValueError."""
        columns = [
            Column(str(name), DataType.of_delta(kind), bool(nullable))
            for name, kind, nullable, _physical in record
        ]
        return cls(tuple(columns), tuple(str(column[3]) for column in record))

    def as_record(self) -> list[list[Any]]:
        found = zip(self.columns, self.physical, strict=True)
        return [[c.name, c.type.as_delta(), c.nullable, physical] for c, physical in found]

    @property
    def schema(self) -> TableSchema:
        return TableSchema(
            Schema(self.columns), self.physical, tuple(None for _one in self.physical)
        )


@dataclass(frozen=True, slots=True)
class BuiltFrom:
    """The source table of a target, and how the target is built.

    source_id: of Delta.
    settings: of the builder.
    start: the first version it covers.
    snapshot: the version whose rows it started with, -1 for none.
    gap: the versions whose changes were skipped, if any (CF-194): those before `start`, or up to it
        if no later one could be read.
    """

    kind: str
    source_id: str
    settings: Mapping[str, Any]
    columns: SourceColumns
    start: int
    snapshot: int = -1
    gap: tuple[int, int] | None = None

    def as_text(self) -> str:
        return json.dumps(
            {
                "format": FORMAT,
                "kind": self.kind,
                "source": self.source_id,
                "settings": dict(self.settings),
                "columns": self.columns.as_record(),
                "start": self.start,
                "snapshot": self.snapshot,
                "gap": self.gap,
            }
        )

    @classmethod
    def parse(cls, text: str) -> BuiltFrom:
        """Raises one of MALFORMED."""
        record = json.loads(text)
        if record["format"] != FORMAT:
            raise ValueError(f"its format is {record['format']}, and this release reads {FORMAT}")
        return cls(
            str(record["kind"]),
            str(record["source"]),
            record["settings"],
            SourceColumns.parse(record["columns"]),
            int(record["start"]),
            int(record["snapshot"]),
            None if record["gap"] is None else (int(record["gap"][0]), int(record["gap"][1])),
        )

    @property
    def application(self) -> str:
        return APPLICATION + self.source_id


@dataclass(frozen=True, slots=True)
class TargetState:
    """A target at one version.

    recorded: the last source version that it covers.
    built, schema: None before its first commit.
    """

    snapshot: TableSnapshot
    built: BuiltFrom | None = None
    schema: TableSchema | None = None

    @property
    def version(self) -> int:
        return self.snapshot.version

    @property
    def recorded(self) -> int:
        assert self.built is not None
        return self.snapshot.transactions[self.built.application]

    @property
    def clock(self) -> int:
        """The latest time of its rows, in microseconds; a very small number for none."""
        assert self.built is not None
        return self.snapshot.transactions.get(self.built.application + CLOCK, -sys.maxsize)

    @property
    def files(self) -> list[Mapping[str, Any]]:
        return list(self.snapshot.files.values())

    @property
    def has_feed(self) -> bool:
        return self.snapshot.properties.get(FEED, "").lower() == "true"


@dataclass(frozen=True, slots=True)
class TargetCommit:
    """One commit, with the source versions `first` to `last`.

    described: the metaData action, if it changes.
    clock: the latest time in its rows, in microseconds.
    details: further members of `userMetadata`.
    """

    built: BuiltFrom
    first: int
    last: int
    actions: Sequence[Mapping[str, Any]] = ()
    described: Mapping[str, Any] | None = None
    clock: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


class TargetTable:
    """The table at a location, a folder or a URL."""

    def __init__(
        self,
        location: str | Path,
        options: ObjectOptions | None = None,
        reached: CrashHook = no_crash,
    ) -> None:
        self.location = str(location)
        self._options, self._reached = options, reached
        self._log = TableLog(self.location, options)

    def state(self) -> TargetState:
        """The newest version. Raises FeedTargetError for a table that is not a target, or that
        requires writer features that we do not support."""
        try:
            snapshot = self._log.snapshot()
            if not snapshot.exists:
                return TargetState(snapshot)
            return self._known(snapshot)
        except FileNotFoundError:
            raise self.refused("the table was removed", "Run it again.") from None
        except NotADirectoryError:
            raise self.refused("there is a file, and no folder", "Name a folder.") from None
        except BrokenLog as error:
            raise self.refused(f"its Delta log cannot be read: {error}") from error

    def _known(self, snapshot: TableSnapshot) -> TargetState:
        text = snapshot.properties.get(BUILT_FROM)
        if text is None:
            raise self.refused(
                "there is another table, which is not built from a change feed",
                "Name a folder in which there is no table.",
            )
        try:
            built, schema = BuiltFrom.parse(text), parse(snapshot.metadata)
        except MALFORMED as error:
            raise self.refused(f"what it is built from cannot be read: {error}") from error
        facts = TableFacts.of(snapshot)
        if why := facts.refused or facts.delegated:
            raise self.refused(f"it can no longer be written: {why}", "Undo what was set on it.")
        if built.application not in snapshot.transactions:
            raise self.refused("it does not say which version of its source it covers")
        return TargetState(snapshot, built, schema)

    def refused(self, what: str, hint: str = "") -> FeedTargetError:
        """An error of this target."""
        hint = hint or "Remove the table and build it anew."
        return FeedTargetError(what, where=self.location, hint=hint)

    @contextmanager
    def workspace(self) -> Iterator[TableWorkspace]:
        """The workspace of its files, which are durable at the end."""
        if not is_url(self.location):
            Path(self.location).mkdir(parents=True, exist_ok=True)
        with open_workspace(self.location, self._options) as workspace, flush.flush_in_background():
            yield workspace

    def described(
        self,
        state: TargetState,
        built: BuiltFrom,
        columns: Sequence[Column],
        properties: Mapping[str, str],
    ) -> dict[str, Any] | None:
        """The metaData action for these columns; None when it does not change.

        properties: of a new table. New columns get physical names, so call it once.
        """
        record = {BUILT_FROM: built.as_text()}
        target_columns = [Column(column.name, column.type) for column in columns]
        if state.schema is None:
            mapped = needs_mapping(Schema.of(target_columns))
            own = {**properties, **record}
            return metadata(Schema.of(target_columns), mapped=mapped, properties=own)
        added = [column for column in target_columns if column.name not in state.schema.schema]
        if not added and built == state.built:
            return None
        described = dict(state.snapshot.metadata)
        if added:
            mapped = needs_mapping(Schema.of([*state.schema.schema, *added]))
            described = widened(described, added, mapped=mapped)
        return {**described, "configuration": described["configuration"] | record}

    def commit(self, state: TargetState, commit: TargetCommit) -> bool:
        """Commit on a state; False when another writer committed first.

        If the response is lost, the table is checked for the commit. Raises Unavailable.
        """
        actions = list(commit.actions)
        if commit.described is not None:
            actions = [{"metaData": commit.described}, *actions]
        if state.built is None:
            actions = [{"protocol": PROTOCOL}, *actions]
        recorded = {commit.built.application: commit.last}
        if commit.clock is not None:
            recorded[commit.built.application + CLOCK] = commit.clock
        actions += [{"txn": {"appId": app, "version": n}} for app, n in recorded.items()]
        flush_names(self.location)
        self._reached(CrashPoint.TARGET_WRITTEN)
        user_metadata = {
            "mirrorlake_feed": FORMAT,
            "versions": [commit.first, commit.last],
            **commit.details,
        }
        done = durable_commit(
            self.location,
            state.version + 1,
            actions,
            self._options,
            operation="CREATE TABLE" if state.built is None else "MERGE",
            userMetadata=json.dumps(user_metadata),
        )
        self._reached(CrashPoint.TARGET_COMMITTED)
        return done

    def rearrange(self, state: TargetState, actions: Sequence[Mapping[str, Any]]) -> bool:
        """Commit other files for the same rows on a state; False when another writer committed
        first. Raises Unavailable."""
        flush_names(self.location)
        self._reached(CrashPoint.FILES_COMPACTED)
        done = durable_commit(
            self.location, state.version + 1, actions, self._options, operation="OPTIMIZE"
        )
        if done:
            self._reached(CrashPoint.COMPACTION_COMMITTED)
        return done
