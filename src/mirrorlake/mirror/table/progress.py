"""What a Delta table says of itself: how far it is, and whether it is still ours."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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
RESEEDED = "mirrorlake.reseeded"
"""Set on a table that was made anew in the place of another (LZ-234)."""

ALTERATION = "mirrorlake.alteration/"

REPLACING = frozenset({"CREATE OR REPLACE TABLE", "REPLACE TABLE"})
"""What Delta calls the commit that makes a table anew in the place of another."""

MALFORMED = (AttributeError, KeyError, TypeError, ValueError)
"""What is raised where a log says things in another form."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of a table, as read from its log at one version.

    version: -1 when there is no table. generation: whose files it holds, empty for a table that
    this engine did not make. detection: how the files of that generation are found. recorded: the
    number of the last applied file, in timestamp mode of the last batch, 0 for none. key: the key
    columns it was made with. required: the columns that its first file declared non-null,
    though in the table they are nullable (LZ-219). restored: the version of a RESTORE after the
    last batch. unsupported: why it cannot be written, in words; delegated: why only Delta
    itself may write it; computed: columns that Delta fills in. batch: the last one, where the log
    still tells it. last, begin: the last applied file, and file 1, as they were when they were
    applied; described: the ETag that `_metadata.json` had with the last batch. These of a zone of
    others, where files have numbers. altered: the number of the last file before which columns were
    altered.
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
    properties: Mapping[str, str] = field(default_factory=dict)
    batch: CommittedBatch | None = None
    last: Identity | None = None
    required: tuple[str, ...] = ()
    begin: Identity | None = None
    described: str = ""
    altered: int = 0

    @property
    def exists(self) -> bool:
        return self.version >= 0

    @property
    def is_reseeding(self) -> bool:
        """Made anew because its folder was recreated, and without its first file (LZ-234)."""
        return self.exists and not self.recorded and RESEEDED in self.properties

    @property
    def is_loading(self) -> bool:
        """Whether its first files are not all applied, as far as the last batch knew (LZ-099)."""
        return not self.recorded or (self.batch is not None and self.batch.loading)

    @property
    def application(self) -> str:
        """The application id under which batches of this generation are recorded."""
        return APPLICATION + self.generation

    @property
    def altering(self) -> str:
        """The application id under which alterations of its columns are recorded."""
        return ALTERATION + self.generation


def progress_in(snapshot: TableSnapshot, table: str) -> Progress:
    """The state of a table at one version. Raises ForeignTable when that does not tell it."""
    try:
        return progress_of(snapshot)
    except MALFORMED as error:
        raise unreadable(table, error) from error


def key_columns(properties: Mapping[str, str]) -> tuple[str, ...]:
    """The key of a mirrored table, by its properties; empty where there is none."""
    return tuple(json.loads(properties.get(KEY_COLUMNS, "[]")))


def table_at(path: str) -> str:
    """The name of the table at a path below the root, for who knows nothing but the path."""
    return ".".join(path.split("/")[1:]) or path


def unreadable(table: str, error: Exception) -> ForeignTable:
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
    said = said_by(info)
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
        properties=dict(snapshot.properties),
        required=tuple(json.loads(snapshot.properties.get(REQUIRED, "[]"))),
        batch=batch_of(last, info),
        last=_identity(said, "last"),
        begin=_identity(said, "begin"),
        described=str(said.get("described", "")),
        altered=snapshot.transactions.get(ALTERATION + generation, 0),
    )


def said_by(info: Action) -> Mapping[str, Any]:
    """What a commit says of itself; others may write what they like."""
    try:
        said = json.loads(info["userMetadata"])
    except (KeyError, TypeError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}


def _identity(said: Mapping[str, Any], member: str) -> Identity | None:
    try:
        return Identity.parse(said[member])
    except (KeyError, TypeError, ValueError):
        return None


def _restored(snapshot: TableSnapshot, application: str) -> int | None:
    """A RESTORE after our last batch keeps what the batch recorded, and not what it wrote.

    One before the table was made anew does not matter: nothing of that generation is left.
    """
    replaced = [v for v, info in snapshot.commits.items() if info.get("operation") in REPLACING]
    since = max([snapshot.recorded_in.get(application, -1), *replaced])
    found = [
        version
        for version, info in snapshot.commits.items()
        if version > since and info.get("operation") == "RESTORE"
    ]
    return max(found, default=None)
