"""All resources of one service, for reading.

Nothing in this package connects to a source, a process or a file of a stream: a `Validator` does
the former, and the supervisor of the streams reads the desired states and reports what it observes
(`Supervision`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import timedelta

from mirrorlake.control import listing
from mirrorlake.control.names import ResourceKind, ResourceName, location
from mirrorlake.control.profiles import Profiles
from mirrorlake.control.reports import Document
from mirrorlake.control.requests import Requests, Validator
from mirrorlake.control.secrets import SecretFile
from mirrorlake.control.store.database import Database
from mirrorlake.control.streams import Streams
from mirrorlake.control.supervision import Supervision, object_id
from mirrorlake.model.clock import Clock
from mirrorlake.model.landed import format_time, parse_time

REQUEST_SECONDS = 86_400.0
"""How long a repeated request is recognised by its identifier; at least an hour is promised
(ST-345)."""
OPERATION_SECONDS = 7 * 86_400.0
"""How long a finished operation is kept."""
ACTIVITY_SECONDS = 90 * 86_400.0
"""How long the activity log is kept."""


class Control:
    """Thread-safe."""

    def __init__(
        self,
        database: Database,
        secrets: SecretFile,
        validator: Validator,
        clock: Clock,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._requests = Requests(database, clock, changed)
        self._database, self._clock = database, clock
        self.profiles = Profiles(self._requests, secrets, validator)
        self.streams = Streams(self._requests, self.profiles, validator)
        self.supervision = Supervision(self._requests, self.streams)

    def get(self, name: ResourceName) -> Document:
        """Raises ResourceNotFound."""
        with self._database.transaction() as transaction:
            return self._requests.get(transaction, name)

    def page(
        self,
        kind: ResourceKind,
        parent: str,
        *,
        size: int = 0,
        token: str = "",
        where: str = "",
        order: str = "",
    ) -> tuple[list[Document], str]:
        """A page, and the token of the next one, empty on the last (ST-342). Raises
        InvalidRequest."""
        size = listing.page_size(size)
        query = hashlib.sha256(f"{kind} {parent} {where} {order}".encode()).hexdigest()[:16]
        offset = listing.offset_of(token, query)
        comparisons, orders = listing.parse_filter(where), listing.parse_order(order)
        with self._database.transaction() as transaction:
            if kind is ResourceKind.OBJECT:
                self._requests.get(transaction, ResourceName.parse(parent))
            else:
                location(parent)
            if comparisons or orders or kind is ResourceKind.STREAM:
                hidden = self._requests.hidden(transaction)
                every = [
                    one
                    for one in transaction.all(kind, parent)
                    if one["name"] not in hidden and all(c.holds(one) for c in comparisons)
                ]
                found = [
                    dict(one) for one in listing.ordered(every, orders)[offset : offset + size + 1]
                ]
            else:
                found = transaction.page(kind, parent, offset, size + 1)
        more = listing.page_token(offset + size, query) if len(found) > size else ""
        return found[:size], more

    def activity(self, name: ResourceName) -> list[Document]:
        """The newest entries of the activity log of a stream (ST-301). Raises ResourceNotFound."""
        with self._database.transaction() as transaction:
            self._requests.get(transaction, name)
            return transaction.activity(str(name))

    def fetch_stream_errors(self, stream: ResourceName) -> list[Document]:
        """The errors of a stream, its objects and their backfills (ST-295, ST-296)."""
        with self._database.transaction() as transaction:
            found = list(self._requests.get(transaction, stream).get("errors", []))
            for one in transaction.all(ResourceKind.OBJECT, str(stream)):
                found += one.get("errors", []) + one.get("backfillJob", {}).get("errors", [])
        return found

    def lookup(self, stream: ResourceName, identifier: Document) -> Document:
        """The object with a source identifier. Raises ResourceNotFound."""
        return self.get(
            ResourceName(str(stream), ResourceKind.OBJECT, object_id(stream, identifier))
        )

    def delete_operation(self, name: ResourceName) -> None:
        """Delete the record of an operation; its work continues. Raises ResourceNotFound."""
        with self._database.transaction() as transaction:
            self._requests.get(transaction, name)
            transaction.remove(name)

    def cancel_operation(self, name: ResourceName) -> None:
        """Record the request; our operations cannot be cancelled. Raises ResourceNotFound."""
        with self._database.transaction() as transaction:
            found = self._requests.get(transaction, name)
            if not found["done"]:
                found["metadata"]["requestedCancellation"] = True
                transaction.put(name, found)

    def tidy(self) -> None:
        """Delete expired requests, finished operations and activity."""
        now = self._clock.now()
        with self._database.transaction() as transaction:
            transaction.forget_requests(now.timestamp() - REQUEST_SECONDS)
            transaction.forget_activity(format_time(now - timedelta(seconds=ACTIVITY_SECONDS)))
            for one in transaction.all(ResourceKind.OPERATION):
                ended = one["metadata"].get("endTime", "")
                if ended and (now - parse_time(ended)).total_seconds() > OPERATION_SECONDS:
                    transaction.remove(one["name"])
