"""A Delta table that is built from the change feed of another, and how far it is.

Each commit covers whole commits of the source and records the last of them, in the same commit as
the rows (CF-193, CF-201). A commit is made only on the version that its rows were computed on, and
only when that version has recorded what comes right before it: so nothing is applied twice or left
out, whoever else builds the same table, and wherever a process dies.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mirrorlake.delta.log import checkpoint
from mirrorlake.delta.log.durability import flush_commit
from mirrorlake.delta.log.table_log import BrokenLog, TableLog, TableSnapshot
from mirrorlake.delta.schema import TableSchema, parse
from mirrorlake.delta.workspace import TableWorkspace, at_hand
from mirrorlake.delta.write import flush
from mirrorlake.delta.write.commit import write_commit
from mirrorlake.delta.write.table_metadata import PROTOCOL, metadata, widened
from mirrorlake.errors import FeedTargetError, Unavailable
from mirrorlake.mirror.schema_evolution import needs_mapping
from mirrorlake.mirror.strategy import TableFacts
from mirrorlake.mirror.table.progress import MALFORMED
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from mirrorlake.model.table import Column, Schema
from mirrorlake.model.types import DataType
from mirrorlake.storage.local import flush_folder
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.urls import is_url

BUILT = "mirrorlake.builtFrom"
"""The property that says from which table a target is built, and how."""

APPLICATION = "mirrorlake-feed/"
"""What the application ids of targets begin with; then comes the id of the source table."""

CLOCK = "/clock"
"""At the end of an application id: it records the latest time of a history, in microseconds."""

CHECKPOINT = 50
"""Commits from one checkpoint to the next."""

FEED = "delta.enableChangeDataFeed"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class SourceColumns:
    """The columns of a source, as the target knows them: by what tells a renamed one."""

    columns: tuple[Column, ...]
    physical: tuple[str, ...]

    @classmethod
    def of(cls, schema: TableSchema) -> SourceColumns:
        return cls(schema.schema.columns, schema.physical)

    @classmethod
    def parse(cls, record: Sequence[Sequence[Any]]) -> SourceColumns:
        """Raises ValueError."""
        columns = [Column(str(n), DataType.parse(kind), bool(null)) for n, kind, null, _p in record]
        return cls(tuple(columns), tuple(str(one[3]) for one in record))

    def as_record(self) -> list[list[Any]]:
        found = zip(self.columns, self.physical, strict=True)
        return [[c.name, str(c.type), c.nullable, physical] for c, physical in found]

    @property
    def schema(self) -> TableSchema:
        return TableSchema(
            Schema(self.columns), self.physical, tuple(None for _one in self.physical)
        )


@dataclass(frozen=True, slots=True)
class BuiltFrom:
    """From which table a target is built, and how. source_id: of Delta; settings: of the builder;
    start: the first version it covers; snapshot: the version whose rows it began with, -1 for
    none; gap: the versions before `start` that were given up, if any (CF-194)."""

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
        said = json.loads(text)
        if said["format"] != FORMAT:
            raise ValueError(f"its format is {said['format']}, and this release reads {FORMAT}")
        return cls(
            str(said["kind"]),
            str(said["source"]),
            said["settings"],
            SourceColumns.parse(said["columns"]),
            int(said["start"]),
            int(said["snapshot"]),
            None if said["gap"] is None else (int(said["gap"][0]), int(said["gap"][1])),
        )

    @property
    def application(self) -> str:
        return APPLICATION + self.source_id


@dataclass(frozen=True, slots=True)
class TargetState:
    """A target at one version. recorded: the last source version that it covers; built, schema:
    None before its first commit."""

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
        """The latest time of its rows, in microseconds; a very small one for none."""
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
    """What one commit brings: the source versions `first` to `last`. described: the metaData action
    where it is another one; clock: the latest time in its rows, in microseconds; said: further
    members of `userMetadata`."""

    built: BuiltFrom
    first: int
    last: int
    actions: Sequence[Mapping[str, Any]] = ()
    described: Mapping[str, Any] | None = None
    clock: int | None = None
    said: Mapping[str, Any] = field(default_factory=dict)


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
        """The newest version. Raises FeedTargetError for a table that is not a target, or that has
        to be written in a way that we have not."""
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
        text = snapshot.properties.get(BUILT)
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
        """The error of this target."""
        hint = hint or "Remove the table and build it anew."
        return FeedTargetError(what, where=self.location, hint=hint)

    @contextmanager
    def at_hand(self) -> Iterator[TableWorkspace]:
        """Its files; what is written inside is durable at the end."""
        if not is_url(self.location):
            Path(self.location).mkdir(parents=True, exist_ok=True)
        with at_hand(self.location, self._options) as workspace, flush.behind():
            yield workspace

    def described(
        self,
        state: TargetState,
        built: BuiltFrom,
        columns: Sequence[Column],
        properties: Mapping[str, str],
    ) -> dict[str, Any] | None:
        """The metaData action with which a table with these columns goes on, or begins; None when
        the present one says the same. properties: of one that begins. New columns get names in
        files, so it is made once."""
        record = {BUILT: built.as_text()}
        wanted = [Column(column.name, column.type) for column in columns]
        if state.schema is None:
            mapped = needs_mapping(Schema.of(wanted))
            own = {**properties, **record}
            return metadata(Schema.of(wanted), mapped=mapped, properties=own)
        added = [column for column in wanted if column.name not in state.schema.schema]
        if not added and built == state.built:
            return None
        described = dict(state.snapshot.metadata)
        if added:
            mapped = needs_mapping(Schema.of([*state.schema.schema, *added]))
            described = widened(described, added, mapped=mapped)
        return {**described, "configuration": described["configuration"] | record}

    def commit(self, state: TargetState, commit: TargetCommit) -> bool:
        """Make a commit on a state; False when another writer was faster.

        The answer may be lost: the table knows, and is asked. Raises Unavailable.
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
        self._flush_names()
        self._reached(CrashPoint.TARGET_WRITTEN)
        said = {"mirrorlake_feed": FORMAT, "versions": [commit.first, commit.last], **commit.said}
        version = state.version + 1
        try:
            done = write_commit(
                self.location,
                version,
                actions,
                self._options,
                operation="CREATE TABLE" if state.built is None else "MERGE",
                userMetadata=json.dumps(said),
            )
        except OSError as error:
            # It may have happened: whoever calls again finds out from what is recorded.
            why = error.strerror or type(error).__name__
            raise Unavailable(f"the storage does not answer: {why}", where=self.location) from error
        self._reached(CrashPoint.TARGET_COMMITTED)
        if done and not is_url(self.location):
            flush_commit(Path(self.location), version)
            if version % CHECKPOINT == 0:
                with suppress(checkpoint.Unfamiliar):
                    checkpoint.write(Path(self.location))
        return done

    def _flush_names(self) -> None:
        """Make the names of new files durable before a commit names them."""
        if not is_url(self.location):
            for folder in (Path(self.location), Path(self.location, "_change_data")):
                if folder.exists():
                    flush_folder(folder)
