"""The progress of a table, read from the log of the Delta table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mirrorlake import root
from mirrorlake.delta import schema as schemas
from mirrorlake.delta.log.history import CommittedBatch, batch_of
from mirrorlake.delta.log.table_log import APPLICATION, Action, TableSnapshot
from mirrorlake.errors import ForeignTable
from mirrorlake.landing.file_identity import Identity
from mirrorlake.landing.metadata import SEQUENTIAL
from mirrorlake.mirror.faults import UnreachableTable
from mirrorlake.mirror.strategy import TableFacts
from mirrorlake.model.table import Schema
from mirrorlake.storage.store import StorageFailed

GENERATION = "mirrorlake.generation"
KEY_COLUMNS = "mirrorlake.keyColumns"
REQUIRED = "mirrorlake.requiredColumns"
FOLDER = "mirrorlake.folder"
DETECTION = "mirrorlake.fileDetectionStrategy"
WHOLE_ROWS = "mirrorlake.wholeRows"
"""Of a table whose key was changed by our capture: whether a change finds its row by all columns.
Others do as `_metadata.json` says."""

DELETES = "mirrorlake.deletes"
SOFT = "soft"
"""The value of DELETES for a table with soft deletes; other tables do not have the property."""

RESEEDED = "mirrorlake.reseeded"
"""The property of a table that replaced another because its folder was recreated (LZ-234)."""

ALTERATION = "mirrorlake.alteration/"

RENAMING, RENAMED = "mirrorlake.renaming/", "mirrorlake.renamedColumns"
"""The application id and the property of the last renaming by column mapping: the property has the
new names by the former ones, as JSON."""

REPLACING = frozenset({"CREATE OR REPLACE TABLE", "REPLACE TABLE"})
"""Names of Delta operations that replace a table."""

MALFORMED = (AttributeError, KeyError, TypeError, ValueError)
"""Errors raised by a log with values of another form."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of a table, read from its log at one version.

    version: -1 if there is no table.
    generation: of the files that it contains; "" if the table was not created by a mirror.
    detection: the file detection strategy of that generation.
    recorded: the number of the last applied file, in timestamp mode of the last batch; 0 for none.
    key: the key columns.
    restored: the version of a RESTORE after the last batch.
    unsupported: why the table cannot be written, as text.
    delegated: why only Delta can write the table, as text.
    computed: columns that Delta computes.
    partitions: the partition columns.
    batch: the last batch, if its commit is still in the log.
    required: the columns that the first file declared non-null; in the table they are nullable
        (LZ-219).
    last, begin: the identities of the last applied file, and of file 1, when they were applied.
    described: the ETag of `_metadata.json` at the last batch. These three are recorded only for
        files of other publishers.
    altered: the number of the last file before which columns were altered.
    renamed_before: that before which columns were renamed by column mapping.
    renamed: the new names of these by the former ones.
    whole_rows: the value of WHOLE_ROWS, None if it is not set.
    """

    version: int = -1
    generation: str = ""
    detection: str = SEQUENTIAL
    recorded: int = 0
    schema: Schema = field(default_factory=lambda: Schema(()))
    key: tuple[str, ...] = ()
    restored: int | None = None
    unsupported: str = ""
    delegated: str = ""
    computed: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    batch: CommittedBatch | None = None
    last: Identity | None = None
    required: tuple[str, ...] = ()
    begin: Identity | None = None
    described: str = ""
    altered: int = 0
    renamed_before: int = 0
    renamed: Mapping[str, str] = field(default_factory=dict)
    whole_rows: bool | None = None

    @property
    def exists(self) -> bool:
        return self.version >= 0

    @property
    def is_reseeding(self) -> bool:
        """Whether the table replaced another because its folder was recreated, and has no files
        applied yet (LZ-234)."""
        return self.exists and not self.recorded and RESEEDED in self.properties

    @property
    def is_loading(self) -> bool:
        """Whether the initial load was incomplete at the last batch (LZ-099)."""
        return not self.recorded or (self.batch is not None and self.batch.loading)

    @property
    def application(self) -> str:
        """The application id under which batches of this generation are recorded."""
        return APPLICATION + self.generation

    @property
    def altering(self) -> str:
        """The application id under which alterations of its columns are recorded."""
        return ALTERATION + self.generation

    @property
    def renaming(self) -> str:
        """The application id under which renamed columns are recorded."""
        return RENAMING + self.generation


def progress_in(snapshot: TableSnapshot, table: str) -> Progress:
    """The state of a table at one version. Raises ForeignTable if it cannot be read."""
    try:
        return progress_of(snapshot)
    except MALFORMED as error:
        raise unreadable(table, error) from error


def key_columns(properties: Mapping[str, str]) -> tuple[str, ...]:
    """The key columns in the properties of a table; empty if there are none."""
    return tuple(json.loads(properties.get(KEY_COLUMNS, "[]")))


def table_name(path: str) -> str:
    """A table name for messages, made from the path of the table below the root."""
    return str(root.table_at(path))


def unreadable(table: str, error: Exception) -> ForeignTable:
    """The error for a log that cannot be read; one that is retried if the storage failed."""
    if isinstance(error, StorageFailed | PermissionError):
        return UnreachableTable(
            f"its Delta log cannot be read: {error}",
            table=table,
            hint="Check that the storage answers and that this process may read it. It is retried.",
        )
    return ForeignTable(
        f"its Delta log cannot be read: {error}",
        table=table,
        hint=f"Restore the missing or damaged files, or run `mirrorlake reset {table}` to "
        "rebuild the table.",
    )


def progress_of(snapshot: TableSnapshot) -> Progress:
    """Read the state of a table from its log."""
    if not snapshot.exists:
        return Progress()
    generation = snapshot.properties.get(GENERATION, "")
    application = APPLICATION + generation
    facts = TableFacts.of(snapshot)
    unsupported = facts.refused
    try:
        schema = schemas.parse(snapshot.metadata).schema
    except schemas.UnknownColumnType as error:
        schema, unsupported = Schema(()), f"it has a column {error}"
    last = snapshot.recorded_in.get(application, -1)
    info = snapshot.commits.get(last, {})
    metadata = commit_metadata(info)
    return Progress(
        version=snapshot.version,
        generation=generation,
        detection=snapshot.properties.get(DETECTION, SEQUENTIAL),
        recorded=snapshot.transactions.get(application, 0),
        schema=schema,
        key=key_columns(snapshot.properties),
        restored=_restored(snapshot, application),
        unsupported=unsupported,
        delegated=facts.delegated,
        computed=facts.computed,
        partitions=tuple(facts.partitions),
        properties=dict(snapshot.properties),
        required=tuple(json.loads(snapshot.properties.get(REQUIRED, "[]"))),
        batch=batch_of(last, info),
        last=_identity(metadata, "last"),
        begin=_identity(metadata, "begin"),
        described=str(metadata.get("described", "")),
        altered=snapshot.transactions.get(ALTERATION + generation, 0),
        renamed_before=snapshot.transactions.get(RENAMING + generation, 0),
        renamed=dict(json.loads(snapshot.properties.get(RENAMED, "{}"))),
        whole_rows=_truth(snapshot.properties.get(WHOLE_ROWS)),
    )


def _truth(text: str | None) -> bool | None:
    return None if text is None else text == "true"


def commit_metadata(info: Action) -> Mapping[str, Any]:
    """The commit metadata (`userMetadata`) of a commit; empty if it is not ours."""
    try:
        metadata = json.loads(info["userMetadata"])
    except (KeyError, TypeError, ValueError):
        return {}
    return metadata if isinstance(metadata, dict) else {}


def _identity(metadata: Mapping[str, Any], member: str) -> Identity | None:
    try:
        return Identity.parse(metadata[member])
    except (KeyError, TypeError, ValueError):
        return None


def _restored(snapshot: TableSnapshot, application: str) -> int | None:
    """The version of a RESTORE after the last batch: it keeps the recorded number, but not the rows
    of the batch. A RESTORE before the table was replaced does not count."""
    replaced = [v for v, info in snapshot.commits.items() if info.get("operation") in REPLACING]
    since = max([snapshot.recorded_in.get(application, -1), *replaced])
    found = [
        version
        for version, info in snapshot.commits.items()
        if version > since and info.get("operation") == "RESTORE"
    ]
    return max(found, default=None)
