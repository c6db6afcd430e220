"""The note that a process of the mirror ended with an error, for whoever asks how it stands.

It holds until the next process in its role begins. A process that is killed leaves no note, but
its lease, which nobody released. So does one that is suspended.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from threading import Event
from typing import Any, assert_never

from mirrorlake import root
from mirrorlake.app.status import status_files
from mirrorlake.errors import (
    LeaseHeld,
    LeaseLost,
    MirrorlakeError,
    ProcessSuspended,
    StorageUnavailable,
    UsageError,
)
from mirrorlake.model.clock import Clock
from mirrorlake.model.landed import format_time, readable_time
from mirrorlake.storage.lease import Abandoned, Silence, abandoned_by, holder_of
from mirrorlake.storage.store import Store

CAPTURE, MIRROR = "capture", "mirror"
COMMANDS = {CAPTURE: "capture", MIRROR: "apply"}
"""Of a role: the command that works in it."""
LOST, SUSPENDED, SILENT = "process_lost", ProcessSuspended.code, "process_silent"
"""Codes of processes that left no note."""


@contextmanager
def noted(store: Store, role: str, clock: Clock, stop: Event) -> Iterator[None]:
    """Note the error with which this ends, unless it was asked to end, or never began: what was
    asked for is wrong, or another process works in its role."""
    store.delete(_path(role))
    try:
        yield
    except (LeaseHeld, LeaseLost, UsageError):
        raise
    except Exception as error:
        if not stop.is_set():
            with suppress(OSError):  # the storage may be what failed
                _note(store, role, clock.now(), facts_of(error))
        raise


def errors(store: Store, now: datetime) -> list[dict[str, Any]]:
    """What ended processes of the mirror that do not work now: by which command, when, code,
    message and hint."""
    found = [
        {"command": command, **fact}
        for role, command in COMMANDS.items()
        if (fact := _error(store, role, now)) is not None
    ]
    # Capture reports to the process that started it, which then ends for the same reason.
    last = {fact["message"]: fact for fact in reversed(found)}
    return [fact for fact in found if last[fact["message"]] is fact]


def said(error: Mapping[str, Any]) -> str:
    """One of `errors` as a sentence for people."""
    if error["code"] in (SUSPENDED, SILENT):
        return f"{error['command']} has not ended, but does nothing: {error['message']}"
    return f"{error['command']} ended at {readable_time(error['time'])}: {error['message']}"


def suspended(found: Iterable[Mapping[str, Any]], command: str) -> ProcessSuspended | None:
    """Of `errors`: that the process of a command is suspended, if it is."""
    for error in found:
        if (error["command"], error["code"]) == (command, SUSPENDED):
            hint = error["hint"]
            what = error["message"].removesuffix(hint).rstrip(" .")
            return ProcessSuspended(f"{command} does nothing: {what}", hint=hint)
    return None


def facts_of(error: Exception) -> dict[str, Any]:
    """An error as plain data. What is not an error of ours may hold values of rows: its text is
    not repeated."""
    known = StorageUnavailable.of(error) if isinstance(error, OSError) else None
    error = known or error
    if isinstance(error, MirrorlakeError):
        facts = error.facts()
        return {name: facts[name] for name in ("code", "message", "hint")}
    return {
        "code": "internal",
        "message": f"it ended with {type(error).__name__}. Its log says where.",
        "hint": "Start it again, which repeats the step, and report the error with its log.",
    }


def _note(store: Store, role: str, now: datetime, error: dict[str, Any]) -> None:
    noted = {"mirrorlake": 1, "time": format_time(now), **error}
    store.replace(_path(role), json.dumps(noted).encode())
    if role == MIRROR:
        status_files.write_replicator(store, "Stopped", now, error["code"], error["message"])


def _error(store: Store, role: str, now: datetime) -> dict[str, Any] | None:
    if holder_of(store, role, now) is not None:
        return None
    try:
        found = json.loads(store.read(_path(role)))
        return {name: found[name] for name in ("time", "code", "message", "hint")}
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        pass
    lost = abandoned_by(store, role, now)
    return None if lost is None else {"time": lost.renewed, **_told_of(lost)}


def _told_of(lost: Abandoned) -> dict[str, Any]:
    """Of a process that left no note: code, message and hint."""
    since = f"{lost.holder} has not renewed its lease since {readable_time(lost.renewed)}"
    again = "start it again, which repeats the step"
    kill = f"To end it: `kill -KILL {lost.pid}`, and {again}."
    code, hint = LOST, f"{again.capitalize()}."
    match lost.silence:
        case Silence.ENDED:
            message = (
                f"{lost.holder} was killed, or its machine went down, or its storage took no note "
                "of why it ended, which its log says."
            )
        case Silence.UNKNOWN:
            message = (
                f"{since}: it was killed or suspended, or its machine went down, or it does not "
                "reach the storage."
            )
        case Silence.SUSPENDED:
            code, hint = SUSPENDED, f"`kill -CONT {lost.pid}` lets it go on where it was. {kill}"
            message = f"{since}: it is suspended, by SIGSTOP, Ctrl-Z or a debugger."
        case Silence.SILENT:
            code = SILENT
            hint = f"It goes on when these answer; its log says what it did last. {kill}"
            message = f"{since}, but runs: it waits for its storage, or for the processor."
        case _:
            assert_never(lost.silence)
    return {"code": code, "message": f"{message} {hint}", "hint": hint}


def _path(role: str) -> str:
    return f"{root.STATE}/ended-{role}.json"
