"""What is wanted of streams, for who supervises them, and what was observed of them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from mirrorlake.control import reports
from mirrorlake.control.names import ResourceKind, ResourceName
from mirrorlake.control.reports import Document, Validation
from mirrorlake.control.requests import DELETED, Requests
from mirrorlake.control.shapes.streams import Stream
from mirrorlake.control.states import StreamMove, StreamState
from mirrorlake.control.store.database import Transaction
from mirrorlake.control.streams import ANEW, RECOVER, Streams
from mirrorlake.errors import IllegalMove
from mirrorlake.model.landed import format_time

_RECOVERIES = (RECOVER, ANEW)


@dataclass(frozen=True, slots=True)
class Supervised:
    """A stream as its supervisor sees it."""

    name: ResourceName
    document: Document
    state: StreamState
    is_deleted: bool

    @property
    def stream(self) -> Stream:
        return Stream.model_validate(self.document)


Seen = Callable[[Mapping[str, Document], datetime], Sequence[Document]]
"""The objects of a stream, from what was told of them before, by display name, and the time."""


ObjectChange = Callable[[Document, Document], Document]
"""Does something to an object, from its stream and from how it is. Returns how it is then."""


class Supervision:
    """For one supervisor."""

    def __init__(self, requests: Requests, streams: Streams) -> None:
        self._requests, self._streams = requests, streams
        self._database, self._clock = requests.database, requests.clock

    @property
    def changes(self) -> int:
        """Grows whenever something was changed in this process."""
        return self._database.changes

    def supervised(self) -> list[Supervised]:
        """Every stream, deleted ones too until they are gone (`removed`)."""
        with self._database.transaction() as transaction:
            wanted = transaction.wanted()
            return [
                Supervised(
                    ResourceName.parse(one["name"]),
                    one,
                    StreamState[one["state"]],
                    wanted.get(one["name"]) == DELETED,
                )
                for one in transaction.all(ResourceKind.STREAM)
            ]

    def recovery(self, name: ResourceName) -> str:
        """RECOVER or ANEW for a stream that starts because a run was asked for; else empty."""
        with self._database.transaction() as transaction:
            wanted = transaction.wanted().get(str(name), "")
            return wanted if wanted in _RECOVERIES else ""

    def observe(
        self,
        name: ResourceName,
        move: StreamMove,
        errors: Sequence[Document] = (),
        validations: Sequence[Validation] = (),
    ) -> None:
        """A stream was moved by what happened to it. Ends the operations that wait for it. A move
        that is no longer legal is left out: a person was faster."""
        with self._database.transaction() as transaction, suppress(IllegalMove):
            document = transaction.get(name)
            if document is None:
                return
            document = self._streams.move(transaction, document, move)
            document["errors"] = list(errors)
            transaction.put(name, document)
            if move in (StreamMove.VALID, StreamMove.LOSE) and (
                transaction.wanted().get(str(name)) in _RECOVERIES
            ):
                transaction.want(name, "")
            self._finish(transaction, document, move, validations)

    def note_errors(self, name: ResourceName, errors: Sequence[Document]) -> None:
        """Replace the errors of a stream or an object."""
        with self._database.transaction() as transaction:
            document = transaction.get(name)
            if document is not None:
                transaction.put(name, {**document, "errors": list(errors)})

    def observe_objects(self, stream: ResourceName, seen: Seen) -> None:
        """The objects of a stream as they are now; those that are no longer there are removed. An
        object keeps its name, and when it was made."""
        with self._database.transaction() as transaction:
            if transaction.get(stream) is None:
                return
            known = {one["name"]: one for one in transaction.all(ResourceKind.OBJECT, str(stream))}
            names = {one["displayName"]: one for one in known.values()}
            for one in seen(names, self._clock.now()):
                name = ResourceName(
                    str(stream), ResourceKind.OBJECT, object_id(stream, one["sourceObject"])
                )
                old = known.pop(str(name), {})
                document = {
                    "name": str(name),
                    "createTime": old.get("createTime", format_time(self._clock.now())),
                    **one,
                    "backfillJob": _with_times(
                        one["backfillJob"], old.get("backfillJob", {}), self._clock.now()
                    ),
                }
                changes = {k: v for k, v in old.items() if k != "updateTime"}
                if document != changes:
                    document["updateTime"] = format_time(self._clock.now())
                    transaction.put(name, document)
            for gone in known:
                transaction.remove(gone)

    def change_object(self, name: ResourceName, change: ObjectChange) -> Document:
        """Do something to an object and tell how it is then, with no look at it in between
        (`observe_objects`). Raises ResourceNotFound, and what `change` raises."""
        with self._database.transaction() as transaction:
            old = self._requests.get(transaction, name)
            document = change(self._requests.get(transaction, ResourceName.parse(name.parent)), old)
            document["updateTime"] = format_time(self._clock.now())
            transaction.put(name, document)
            return document

    def removed(self, name: ResourceName, message: str = "") -> None:
        """A stream that was deleted is gone; message: what is left of it elsewhere, if anything."""
        with self._database.transaction() as transaction:
            transaction.remove(name)
            for one in self._waiting(transaction, str(name)):
                if message:
                    one["metadata"]["statusMessage"] = message
                if one["metadata"]["verb"] == "delete":
                    done = reports.finished(one, self._clock.now())
                else:
                    done = reports.finished(one, self._clock.now(), error="the stream was deleted")
                transaction.put(ResourceName.parse(one["name"]), done)

    def _finish(
        self,
        transaction: Transaction,
        document: Document,
        move: StreamMove,
        validations: Sequence[Validation],
    ) -> None:
        """End the operations that wait for a state which is reached, or cannot be."""
        now = self._clock.now()
        for one in self._waiting(transaction, document["name"]):
            failed = move in (StreamMove.INVALID, StreamMove.FAIL, StreamMove.LOSE)
            messages = [error["message"] for error in document.get("errors", [])]
            done = reports.finished(
                one,
                now,
                response=document,
                kind="Stream",
                error=" ".join(messages) or "the stream failed" if failed else "",
                validations=validations,
            )
            transaction.put(ResourceName.parse(one["name"]), done)

    @staticmethod
    def _waiting(transaction: Transaction, target: str) -> list[Document]:
        parent = ResourceName.parse(target).parent
        return [
            one
            for one in transaction.all(ResourceKind.OPERATION, parent)
            if not one["done"] and one["metadata"]["target"] == target
        ]


def _with_times(job: Document, old: Document, now: datetime) -> Document:
    """A backfill job with when it began and ended, as far as that was seen."""
    times: Document = {name: old[name] for name in ("lastStartTime", "lastEndTime") if name in old}
    if job["state"] != old.get("state"):
        if job["state"] == "ACTIVE":
            times = {"lastStartTime": format_time(now)}
        elif job["state"] in ("COMPLETED", "FAILED", "UNSUPPORTED"):
            times["lastEndTime"] = format_time(now)
    return {**times, **job}


def object_id(stream: ResourceName, identifier: Document) -> str:
    """Of an object by what it is in the source, so that it is the same whenever it is found."""
    text = json.dumps(identifier, sort_keys=True)
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{stream} {text}"))
