"""The documents of validations, errors and operations (ST-297, ST-299, ST-343, ST-344)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from mirrorlake.control.names import ResourceKind, ResourceName
from mirrorlake.control.states import MessageLevel, ValidationState
from mirrorlake.errors import MirrorlakeError
from mirrorlake.model.landed import format_time

TYPE = "type.googleapis.com/google.cloud.datastream.v1."
EMPTY_TYPE = "type.googleapis.com/google.protobuf.Empty"
FAILED_PRECONDITION = 9
"""The status code of an operation whose validation failed."""

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Validation:
    """The result of one validation. remedy: what to do, empty if nothing."""

    code: str
    description: str
    state: ValidationState
    message: str = ""
    remedy: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)

    def document(self) -> Document:
        found: Document = {
            "description": self.description,
            "state": self.state.name,
            "code": self.code,
        }
        if self.message:
            level = (
                MessageLevel.ERROR if self.state is ValidationState.FAILED else MessageLevel.WARNING
            )
            found["message"] = [
                {
                    "message": f"{self.message}. {self.remedy}".strip(),
                    "level": level.name,
                    "code": self.code,
                    "metadata": {**self.metadata, "remedy": self.remedy},
                }
            ]
        return found


def has_failed(validations: Sequence[Validation]) -> bool:
    return any(one.state is ValidationState.FAILED for one in validations)


def validation_result(validations: Sequence[Validation]) -> Document:
    return {"validations": [one.document() for one in validations]}


def why(validations: Sequence[Validation]) -> str:
    """The failed validations, as sentences."""
    failed = [one for one in validations if one.state is ValidationState.FAILED]
    return " ".join(f"{one.description}: {one.message}. {one.remedy}".strip() for one in failed)


def error_document(
    reason: str, message: str, now: datetime, details: Mapping[str, str] | None = None
) -> Document:
    """An error of a stream, object or backfill job (ST-297)."""
    return {
        "reason": reason.upper(),
        "errorUuid": str(uuid.uuid4()),
        "message": message,
        "errorTime": format_time(now),
        "details": dict(details or {}),
    }


def error_of(error: MirrorlakeError, now: datetime) -> Document:
    facts = {"where": error.where, "hint": error.hint}
    return error_document(error.code, str(error), now, {k: v for k, v in facts.items() if v})


def new_operation(parent: str, verb: str, target: ResourceName, now: datetime) -> Document:
    """A running operation (ST-343, ST-344)."""
    return {
        "name": str(ResourceName(parent, ResourceKind.OPERATION, f"operation-{uuid.uuid4()}")),
        "metadata": {
            "@type": f"{TYPE}OperationMetadata",
            "createTime": format_time(now),
            "target": str(target),
            "verb": verb,
            "requestedCancellation": False,
            "apiVersion": "v1",
        },
        "done": False,
    }


def finished(
    operation: Mapping[str, Any],
    now: datetime,
    *,
    response: Document | None = None,
    kind: str = "",
    error: str = "",
    code: int = FAILED_PRECONDITION,
    validations: Sequence[Validation] = (),
) -> Document:
    """The finished operation: with an error, or with the resource, or with an empty response."""
    metadata = {**operation["metadata"], "endTime": format_time(now)}
    if validations:
        metadata["validationResult"] = validation_result(validations)
    found = {**operation, "metadata": metadata, "done": True}
    if error:
        return {**found, "error": {"code": code, "message": error, "details": []}}
    if response is None:
        return {**found, "response": {"@type": EMPTY_TYPE}}
    return {**found, "response": {"@type": f"{TYPE}{kind}", **response}}
