"""Reads, writes and lists resources in a database, one transaction at a time.

The database records desired states and observations. The actual progress of a stream is read from
its files and tables.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import alembic.command
import alembic.config
from sqlalchemy import (
    Connection,
    Engine,
    bindparam,
    create_engine,
    delete,
    event,
    insert,
    select,
    update,
)
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from mirrorlake.control.names import ResourceKind, ResourceName
from mirrorlake.control.store.tables import ACTIVITY, REQUESTS, RESOURCES
from mirrorlake.errors import StorageUnavailable, UsageError

MIGRATIONS = Path(__file__).parent / "migrations"
BUSY_SECONDS = 5

_SUPERVISED = (ResourceKind.STREAM, ResourceKind.PROFILE)
"""The kinds that determine what runs; objects and operations only report it."""

Document = dict[str, Any]


class Database:
    """One database, for the threads of one process. url: of SQLAlchemy."""

    def __init__(self, url: str) -> None:
        """Connect, and migrate the tables. Raises UsageError, StorageUnavailable."""
        self._engine = _engine(url)
        # A URL may have a password.
        is_file = self._engine.dialect.name == "sqlite" and self._engine.url.database
        self._where = str(is_file or "the database of `mirrorlake serve`")
        self._lock = threading.RLock()
        self._is_closed = False
        self.changes = 0
        """Grows with each transaction of this process that changed streams or profiles."""
        with self._translated(), self._engine.begin() as connection:
            config = alembic.config.Config()
            config.set_main_option("script_location", str(MIGRATIONS))
            config.attributes["connection"] = connection
            alembic.command.upgrade(config, "head")

    def close(self) -> None:
        """End the connections, after the transaction at hand; no later one opens them again."""
        with self._lock:
            self._is_closed = True
            self._engine.dispose()

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """An atomic transaction. Raises StorageUnavailable."""
        with self._lock, self._translated():
            if self._is_closed:
                raise StorageUnavailable(
                    "the database of the streams is closed: `mirrorlake serve` is ending",
                    where=self._where,
                    hint="Start it again.",
                )
            with self._engine.begin() as connection:
                transaction = Transaction(connection)
                yield transaction
            self.changes += transaction.is_changed

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (DBAPIError, PoolTimeout) as error:
            reason = str(error.orig if isinstance(error, DBAPIError) else error)
            raise StorageUnavailable(
                f"the database of the streams returned an error: {reason.splitlines()[0]}",
                where=self._where,
                hint="Check that it can be reached and written, and that its disk has space.",
            ) from error


class Transaction:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.is_changed = False

    def get(self, name: ResourceName | str) -> Document | None:
        found = self._connection.execute(
            select(RESOURCES.c.document).where(RESOURCES.c.name == str(name))
        ).scalar()
        return None if found is None else _read(found)

    def all(self, kind: ResourceKind, parent: str | None = None) -> list[Document]:
        """All of a kind, sorted by name; parent: None for every parent."""
        query = select(RESOURCES.c.document).where(RESOURCES.c.kind == kind.value)
        if parent is not None:
            query = query.where(RESOURCES.c.parent == parent)
        return [_read(row[0]) for row in self._connection.execute(query.order_by(RESOURCES.c.name))]

    def page(self, kind: ResourceKind, parent: str, offset: int, size: int) -> list[Document]:
        """A page of the resources of a parent, sorted by name."""
        query = (
            select(RESOURCES.c.document)
            .where(RESOURCES.c.kind == kind.value, RESOURCES.c.parent == parent)
            .order_by(RESOURCES.c.name)
            .offset(offset)
            .limit(size)
        )
        return [_read(row[0]) for row in self._connection.execute(query)]

    def put(self, name: ResourceName, document: Mapping[str, Any]) -> None:
        """Create or replace a resource."""
        self.is_changed |= name.kind in _SUPERVISED
        text = json.dumps(document, ensure_ascii=False)
        changed = self._connection.execute(
            update(RESOURCES).where(RESOURCES.c.name == str(name)).values(document=text)
        )
        if changed.rowcount == 0:
            self._connection.execute(
                insert(RESOURCES).values(
                    name=str(name), kind=name.kind.value, parent=name.parent, document=text
                )
            )

    def put_all(self, kind: ResourceKind, parent: str, documents: Mapping[str, Document]) -> None:
        """Create or replace resources of a kind below a parent, given by name."""
        self.is_changed |= kind in _SUPERVISED
        query = select(RESOURCES.c.name).where(
            RESOURCES.c.kind == kind.value, RESOURCES.c.parent == parent
        )
        known = set(self._connection.execute(query).scalars())
        texts = {name: json.dumps(one, ensure_ascii=False) for name, one in documents.items()}
        changed = [{"_name": one, "_text": text} for one, text in texts.items() if one in known]
        made = [
            {"name": one, "kind": kind.value, "parent": parent, "document": text}
            for one, text in texts.items()
            if one not in known
        ]
        if changed:
            where = RESOURCES.c.name == bindparam("_name")
            statement = update(RESOURCES).where(where).values(document=bindparam("_text"))
            self._connection.execute(statement, changed)
        if made:
            self._connection.execute(insert(RESOURCES), made)

    def remove(self, name: ResourceName | str) -> None:
        """Remove a resource and everything below it."""
        self.is_changed |= isinstance(name, str) or name.kind in _SUPERVISED
        self._connection.execute(delete(RESOURCES).where(RESOURCES.c.name == str(name)))
        below = f"{name}/{ResourceKind.OBJECT.value}"
        for table, column in ((RESOURCES, RESOURCES.c.parent), (ACTIVITY, ACTIVITY.c.resource)):
            self._connection.execute(delete(table).where(column.in_([below, str(name)])))

    def wanted(self) -> dict[str, str]:
        """The desired state of each stream."""
        query = select(RESOURCES.c.name, RESOURCES.c.wanted).where(
            RESOURCES.c.kind == ResourceKind.STREAM.value
        )
        return {row.name: row.wanted for row in self._connection.execute(query)}

    def want(self, stream: ResourceName, state: str) -> None:
        self.is_changed = True
        self._connection.execute(
            update(RESOURCES).where(RESOURCES.c.name == str(stream)).values(wanted=state)
        )

    def request(self, parent: str, request_id: str) -> tuple[str, str] | None:
        """The digest and the operation of an earlier request with this identifier."""
        query = select(REQUESTS.c.digest, REQUESTS.c.operation).where(
            REQUESTS.c.parent == parent, REQUESTS.c.id == request_id
        )
        found = self._connection.execute(query).one_or_none()
        return None if found is None else (found.digest, found.operation)

    def note_request(
        self, parent: str, request_id: str, digest: str, operation: str, time: float
    ) -> None:
        self._connection.execute(
            insert(REQUESTS).values(
                parent=parent, id=request_id, digest=digest, operation=operation, time=time
            )
        )

    def forget_requests(self, before: float) -> None:
        self._connection.execute(delete(REQUESTS).where(REQUESTS.c.time < before))

    def log(self, resource: str, time: str, *entries: tuple[str, str, str]) -> None:
        """Append to the activity log (ST-301). entries: code, message, and the new state or ""."""
        if entries:
            rows = [
                {
                    "resource": resource,
                    "time": time,
                    "event_code": code,
                    "event_message": message,
                    "new_state": state,
                }
                for code, message, state in entries
            ]
            self._connection.execute(insert(ACTIVITY), rows)

    def forget_activity(self, before: str) -> None:
        self._connection.execute(delete(ACTIVITY).where(ACTIVITY.c.time < before))

    def activity(self, resource: str, most: int = 100) -> list[Document]:
        """The newest entries, oldest first."""
        query = (
            select(ACTIVITY)
            .where(ACTIVITY.c.resource == resource)
            .order_by(ACTIVITY.c.number.desc())
            .limit(most)
        )
        rows = list(self._connection.execute(query))
        return [_entry(row) for row in reversed(rows)]


def _entry(row: Any) -> Document:
    entry = {"time": row.time, "eventCode": row.event_code, "eventMessage": row.event_message}
    return entry | ({"streamStateChange": {"newState": row.new_state}} if row.new_state else {})


def _read(text: str) -> Document:
    found: Document = json.loads(text)
    return found


def _engine(url: str) -> Engine:
    try:
        engine = create_engine(url, pool_pre_ping=True)
    except (ArgumentError, NoSuchModuleError, ImportError) as error:
        # The original error contains the URL with its password.
        raise UsageError(
            "the URL of the database of the streams is not valid, or its driver is not installed",
            where="serve --database",
            hint="Write it as SQLAlchemy does, for example postgresql+psycopg://host/name.",
        ) from (error if isinstance(error, ImportError) else None)
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _on_sqlite)
    return engine


def _on_sqlite(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    for statement in (
        f"pragma busy_timeout = {BUSY_SECONDS * 1_000}",
        "pragma journal_mode = wal",
        "pragma synchronous = full",
    ):
        cursor.execute(statement)
    cursor.close()
