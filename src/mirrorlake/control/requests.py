"""Changes of resources: atomic, and applied once per request identifier."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from mirrorlake.control import reports
from mirrorlake.control.checks import request_id
from mirrorlake.control.names import ResourceKind, ResourceName
from mirrorlake.control.reports import Document, Validation
from mirrorlake.control.shapes.profiles import ConnectionProfile
from mirrorlake.control.shapes.streams import Stream
from mirrorlake.control.store.database import Database, Transaction
from mirrorlake.errors import InvalidRequest, ResourceExists, ResourceNotFound
from mirrorlake.model.clock import Clock
from mirrorlake.model.landed import format_time

DELETED = "DELETED"
"""The desired state of a stream that is being deleted; it is no longer listed."""


class Validator(Protocol):
    """Validates a profile or a stream against the outside world. It may take seconds and changes
    nothing."""

    def profile(
        self, profile: ConnectionProfile, secrets: Mapping[str, str], /
    ) -> Sequence[Validation]: ...

    def stream(self, name: ResourceName, stream: Stream, /) -> Sequence[Validation]: ...


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of a request.

    request_id: a UUID by which a repeated request is recognised (ST-345).
    validate_only: change nothing.
    force: do not validate (ST-300).
    """

    request_id: str = ""
    validate_only: bool = False
    force: bool = False


class Requests:
    """Performs requests and records their operations. changed: called after each change that
    concerns a supervisor."""

    def __init__(
        self, database: Database, clock: Clock, changed: Callable[[], None] = lambda: None
    ) -> None:
        self.database, self.clock, self._changed = database, clock, changed

    def current(self, name: ResourceName) -> Document:
        """Raises ResourceNotFound."""
        with self.database.transaction() as transaction:
            return self.get(transaction, name)

    def do(
        self,
        name: ResourceName,
        verb: str,
        asked: Asked,
        sent: object,
        act: Callable[[Transaction], Document | None],
        validations: Sequence[Validation] = (),
        kind: str = "",
        *,
        waits: bool = False,
    ) -> Document:
        """Perform a request, once per request identifier. Returns its operation.

        waits: the operation ends with a call of `observe` or `removed`.
        """
        now = self.clock.now()
        identifier = request_id(asked.request_id)
        with self.database.transaction() as transaction:
            if known := self._repeated(transaction, name, verb, asked, sent):
                return known  # another thread was first
            operation = reports.new_operation(name.parent, verb, name, now)
            if reports.has_failed(validations):
                operation = reports.finished(
                    operation, now, error=reports.why(validations), validations=validations
                )
            else:
                document = act(transaction)
                if not waits or asked.validate_only:
                    operation = reports.finished(
                        operation, now, response=document, kind=kind, validations=validations
                    )
            transaction.put(ResourceName.parse(operation["name"]), operation)
            if identifier and not asked.validate_only:
                digest = _digest(name, verb, sent)
                transaction.note_request(
                    name.parent, identifier, digest, operation["name"], now.timestamp()
                )
        self._changed()
        return operation

    def repeated(
        self, name: ResourceName, verb: str, asked: Asked, sent: object
    ) -> Document | None:
        """The operation of the same request, if it was received before (ST-345). Raises
        InvalidRequest when the identifier belongs to a different request."""
        with self.database.transaction() as transaction:
            return self._repeated(transaction, name, verb, asked, sent)

    @staticmethod
    def _repeated(
        transaction: Transaction, name: ResourceName, verb: str, asked: Asked, sent: object
    ) -> Document | None:
        identifier = request_id(asked.request_id)
        known = transaction.request(name.parent, identifier) if identifier else None
        if known is None:
            return None
        digest, operation = known
        if digest == _digest(name, verb, sent) and (found := transaction.get(operation)):
            return found
        raise InvalidRequest(
            "the request identifier was used for another request",
            where="requestId",
            hint="Use a new UUID for each request.",
        )

    def get(self, transaction: Transaction, name: ResourceName) -> Document:
        found = transaction.get(name)
        stream = name.parent if name.kind is ResourceKind.OBJECT else str(name)
        if found is None or stream in self.hidden(transaction):
            raise ResourceNotFound(
                f"there is no {name.kind.value.removesuffix('s')} {name.id}",
                where=name.parent,
                hint="List what is there, and check project, location and name.",
            )
        return found

    @staticmethod
    def hidden(transaction: Transaction) -> set[str]:
        return {name for name, wanted in transaction.wanted().items() if wanted == DELETED}

    def check_free(self, transaction: Transaction, name: ResourceName) -> None:
        if transaction.get(name) is not None:
            going = str(name) in self.hidden(transaction)
            raise ResourceExists(
                f"{name.id} is being deleted" if going else f"{name.id} exists already",
                where=f"{name.parent}/{name.kind.value}",
                hint="Wait for its operation." if going else "Choose another identifier.",
            )

    def stamped(self, document: Document, name: ResourceName) -> Document:
        now = format_time(self.clock.now())
        created = document.get("createTime") or now
        return {**document, "name": str(name), "createTime": created, "updateTime": now}


def _digest(name: ResourceName, verb: str, sent: object) -> str:
    """A digest of the request, which reveals no secret in it."""
    return hashlib.sha256(json.dumps([str(name), verb, sent], sort_keys=True).encode()).hexdigest()
