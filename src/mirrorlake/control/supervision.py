"""The desired states of streams for their supervisor, and the supervisor's observations."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from mirrorlake.control import reports
from mirrorlake.control.names import ResourceKind, ResourceName
from mirrorlake.control.reports import Document, Validation
from mirrorlake.control.requests import DELETED, Requests
from mirrorlake.control.states import StreamMove, StreamState
from mirrorlake.control.store.database import Transaction
from mirrorlake.control.streams import ANEW, FORCED, RECOVER, Streams
from mirrorlake.errors import IllegalMove
from mirrorlake.model.landed import format_time

_RECOVERIES = (RECOVER, ANEW)
_ENDS = {
    StreamMove.VALID: (*_RECOVERIES, FORCED),
    StreamMove.LOSE: (*_RECOVERIES, FORCED),
    StreamMove.INVALID: (FORCED,),
    StreamMove.FAIL: (FORCED,),
}
"""By move: what a stream was wanted to do that it no longer is."""


@dataclass(frozen=True, slots=True)
class Supervised:
    """A stream as its supervisor sees it."""

    name: ResourceName
    document: Document
    state: StreamState
    is_deleted: bool


ObjectLook = Callable[[Mapping[str, Document], datetime], Sequence[Document]]
"""Returns the objects of a stream, given those of the look before, by display name, and the
time."""


ObjectChange = Callable[[Document, Document], Document]
"""Changes an object, given its stream and the object. Returns the changed object."""


class Supervision:
    """Used by one supervisor."""

    def __init__(self, requests: Requests, streams: Streams) -> None:
        self._requests, self._streams = requests, streams
        self._database, self._clock = requests.database, requests.clock

    @property
    def changes(self) -> int:
        """Increases whenever a stream or a profile is changed in this process."""
        return self._database.changes

    def supervised(self) -> list[Supervised]:
        """Every stream, including deleted ones until they are `removed`."""
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
        """RECOVER or ANEW for a stream that starts because a run was requested; else empty."""
        wanted = self._wanted(name)
        return next((one for one in _RECOVERIES if one in wanted), "")

    def is_forced(self, name: ResourceName) -> bool:
        """Whether the stream starts without validation (ST-300)."""
        return FORCED in self._wanted(name)

    def _wanted(self, name: ResourceName) -> list[str]:
        with self._database.transaction() as transaction:
            return transaction.wanted().get(str(name), "").split()

    def observe(
        self,
        name: ResourceName,
        move: StreamMove,
        errors: Sequence[Document] = (),
        validations: Sequence[Validation] = (),
    ) -> None:
        """Move a stream because of an observation, and end the operations that wait for it. A move
        that is no longer legal is ignored: a user's request came first."""
        with self._database.transaction() as transaction, suppress(IllegalMove):
            document = transaction.get(name)
            if document is None:
                return
            document = self._streams.move(transaction, document, move)
            document["errors"] = list(errors)
            transaction.put(name, document)
            wanted = transaction.wanted().get(str(name), "").split()
            if ended := {*_ENDS.get(move, ())} & {*wanted}:
                left = " ".join(one for one in wanted if one not in ended)
                transaction.want(name, left)
            self._finish(transaction, document, move, validations)

    def note_errors(self, name: ResourceName, errors: Sequence[Document]) -> None:
        """Replace the errors of a stream or an object."""
        with self._database.transaction() as transaction:
            document = transaction.get(name)
            if document is not None:
                transaction.put(name, {**document, "errors": list(errors)})

    def observe_objects(self, stream: ResourceName, look: ObjectLook) -> None:
        """Update the objects of a stream; those that no longer exist are removed."""
        with self._database.transaction() as transaction:
            if transaction.get(stream) is None:
                return
            known = {one["name"]: one for one in transaction.all(ResourceKind.OBJECT, str(stream))}
            now = self._clock.now()
            found = [
                _object(stream, seen, known, now)
                for seen in look({one["displayName"]: one for one in known.values()}, now)
            ]
            changed = [one for one in found if _is_changed(known.get(one["name"], {}), one)]
            documents = {one["name"]: {**one, "updateTime": format_time(now)} for one in changed}
            transaction.put_all(ResourceKind.OBJECT, str(stream), documents)
            entries = [e for one in changed for e in _entries_of(known.get(one["name"], {}), one)]
            transaction.log(str(stream), format_time(now), *entries)
            there = {one["name"] for one in found}
            for gone in known:
                if gone not in there:
                    transaction.remove(gone)

    def change_object(self, name: ResourceName, change: ObjectChange) -> Document:
        """Change an object and return it, atomically with respect to `observe_objects`. Raises
        ResourceNotFound, and what `change` raises."""
        with self._database.transaction() as transaction:
            old = self._requests.get(transaction, name)
            document = change(self._requests.get(transaction, ResourceName.parse(name.parent)), old)
            document["updateTime"] = format_time(self._clock.now())
            transaction.put(name, document)
            return document

    def removed(self, name: ResourceName, message: str = "") -> None:
        """A deleted stream is gone; message: what is left of it elsewhere, if anything."""
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
        """End the operations that wait for a state that was reached or can no longer be reached."""
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


def _object(
    stream: ResourceName, seen: Document, known: Mapping[str, Document], now: datetime
) -> Document:
    """An object that was seen, without its update time. It keeps its name and creation time."""
    name = ResourceName(str(stream), ResourceKind.OBJECT, object_id(stream, seen["sourceObject"]))
    old = known.get(str(name), {})
    job = _with_times(seen["backfillJob"], old.get("backfillJob", {}), now)
    made = old.get("createTime", format_time(now))
    return {"name": str(name), "createTime": made, **seen, "backfillJob": job}


def _is_changed(old: Document, now: Document) -> bool:
    return now != {name: value for name, value in old.items() if name != "updateTime"}


def _entries_of(old: Document, now: Document) -> Iterator[tuple[str, str, str]]:
    """The activity log entries for a changed object (ST-294)."""
    name, job = now["displayName"], now["backfillJob"]
    begins = "backfillJob" in old or job["state"] not in ("NOT_STARTED", "PENDING")
    if begins and job["state"] != old.get("backfillJob", {}).get("state"):
        rows = job.get("progress", {}).get("rows")
        more = "" if rows is None else f", {rows:,} rows"
        yield "BACKFILL_STATE_CHANGED", f"{name}: the backfill is {job['state']}{more}", ""
    known = {one["errorUuid"] for one in old.get("errors", ())}
    for error in now["errors"]:
        if error["errorUuid"] not in known:
            yield "OBJECT_FAILED", f"{name}: {error['message']}", ""


def _with_times(job: Document, old: Document, now: datetime) -> Document:
    """A backfill job with its start and end times, as far as observed."""
    times: Document = {name: old[name] for name in ("lastStartTime", "lastEndTime") if name in old}
    if job["state"] != old.get("state"):
        if job["state"] == "ACTIVE":
            times = {"lastStartTime": format_time(now)}
        elif job["state"] in ("COMPLETED", "FAILED", "UNSUPPORTED"):
            times["lastEndTime"] = format_time(now)
    return {**times, **job}


def object_id(stream: ResourceName, identifier: Document) -> str:
    """The identifier of an object, derived from its identity in the source, so that it is
    stable."""
    text = json.dumps(identifier, sort_keys=True)
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{stream} {text}"))
