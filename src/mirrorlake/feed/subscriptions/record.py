"""Stores the position of each subscription, in one small file each, below the root of the table.

A subscription needs the changes from version `next` on. The identities of the preceding commit and
of the table detect a table that was recreated or restored from a copy, whose versions do not
continue those that were read (CF-181).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Self

from mirrorlake.errors import UsageError, printable
from mirrorlake.root import SUBSCRIPTIONS, escaped
from mirrorlake.storage.store import Store

FORMAT = 1
LONGEST = 200
"""Maximum bytes of a file name."""
_SUFFIX = ".json"


@dataclass(frozen=True, slots=True)
class FeedPosition:
    """The position after all changes of one version of one table. Printed as `version@table id`."""

    table_id: str
    version: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the printed form. Raises ValueError."""
        version, separator, table_id = text.partition("@")
        if not (separator and table_id and version.isascii() and version.isdecimal()):
            raise ValueError(f"not a position of a feed: {text!r}")
        return cls(table_id, int(version))

    def __str__(self) -> str:
        return f"{self.version}@{self.table_id}"


@dataclass(frozen=True, slots=True)
class SubscriptionRecord:
    """The stored form of a subscription.

    table: its path below the root, or its location.
    next: the first version that was not read; None before the snapshot of the table was read.
    delivered: the last version whose changes were read, -1 for none; versions between the two
        changed no rows.
    commit: identity of the commit before `next`; columns: of the table there.
    schema_changes: versions that changed them since `delivered`.
    """

    name: str
    table: str
    table_id: str
    next: int | None
    delivered: int = -1
    commit: str = ""
    columns: str = ""
    schema_changes: tuple[int, ...] = ()

    def content(self) -> bytes:
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1).encode()

    @classmethod
    def parse(cls, content: bytes) -> Self:
        """Raises ValueError for anything but a record, and for a later format."""
        found = json.loads(content)
        if not isinstance(found, dict) or found.pop("format", None) != FORMAT:
            raise ValueError(f"not a subscription of format {FORMAT}")
        try:
            record = cls(**found)
        except TypeError as error:
            raise ValueError(str(error)) from None
        numbers = [record.delivered, *record.schema_changes]
        numbers += [] if record.next is None else [record.next]
        texts = [record.name, record.table, record.table_id, record.commit, record.columns]
        if not all(type(value) is int for value in numbers) or not all(
            isinstance(value, str) for value in texts
        ):
            raise ValueError("a member has another type")
        return replace(record, schema_changes=tuple(record.schema_changes))


class Subscriptions:
    """The subscriptions below one root."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def read(self, name: str) -> SubscriptionRecord | None:
        """Raises UsageError for an invalid name, and for a file that is not a record."""
        path = self._path(name)
        try:
            return SubscriptionRecord.parse(self._store.read(path))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise self._damaged(path, error) from error

    def write(self, record: SubscriptionRecord) -> None:
        self._store.replace(self._path(record.name), record.content())

    def remove(self, name: str) -> None:
        self._store.delete(self._path(name))

    def all(self) -> Iterator[SubscriptionRecord]:
        """In file order. Raises UsageError for a file that is not a record, rather than skipping
        it."""
        for record in self.each():
            if isinstance(record, UsageError):
                raise record
            yield record

    def each(self) -> Iterator[SubscriptionRecord | UsageError]:
        """Like `all`, with the error of each file that is not a record."""
        for file in self._store.list(SUBSCRIPTIONS).files:
            if file.name.endswith(_SUFFIX):
                path = f"{SUBSCRIPTIONS}/{file.name}"
                try:
                    yield SubscriptionRecord.parse(self._store.read(path))
                except FileNotFoundError:
                    continue  # removed meanwhile
                except ValueError as error:
                    yield self._damaged(path, error)

    def of_table(self, table: str) -> list[SubscriptionRecord]:
        """The subscriptions of the table at a path. Raises UsageError."""
        return [record for record in self.all() if record.table == table]

    def _path(self, name: str) -> str:
        return f"{SUBSCRIPTIONS}/{file_name(name)}{_SUFFIX}"

    def _damaged(self, path: str, error: ValueError) -> UsageError:
        return UsageError(
            f"the file of a subscription cannot be read: {error}",
            where=self._store.location(path),
            hint="Restore the file, or delete it and subscribe again.",
        )


def file_name(name: str) -> str:
    """The file name for a subscription. Raises UsageError for an invalid name."""
    is_usable = bool(name.strip(". ")) and name.isprintable()
    if not is_usable or len(escaped(name).encode()) > LONGEST:
        raise UsageError(
            f"{printable(name)} cannot be the name of a subscription",
            where="subscribe",
            hint="Use letters, digits and signs, at most some 100 of them.",
        )
    return escaped(name)
