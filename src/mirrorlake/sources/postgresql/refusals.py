"""What the server and libpq refuse, in our words. A server says it in its own language."""

from __future__ import annotations

import os
import re
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

from mirrorlake.errors import PrerequisiteMissing, SourceUnavailable

SILENT, REJECTED = "does not answer", "rejected the connection"
"""What `failure` says."""

POOLER = (
    "The URL names a connection pooler, such as PgBouncer, or a trigger on login changes them. "
    "Capture needs connections to the server itself: write its host and port in the URL."
)


@contextmanager
def translated() -> Iterator[None]:
    """Errors of the connection become ours, and that a function may not be executed; other errors
    of a statement stay what they are."""
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        refused = _FUNCTION.search(str(error))  # in whatever language
        if refused is None:
            raise
        raise PrerequisiteMissing(
            f"the user of the source may not execute {refused[1]}",
            where="PostgreSQL",
            hint=f"Run `grant execute on function {refused[1]}` to that user as a superuser: "
            "`mirrorlake check` prints the statement.",
        ) from error
    except psycopg.OperationalError as error:
        if error.sqlstate == _NOT_NOW and error.diag.source_file == _OF_POSITIONS:
            raise SourceUnavailable(
                "the PostgreSQL server is a standby, and capture needs the one that takes writes",
                hint="Name that one in the URL, or all of them with "
                "target_session_attrs=read-write.",
            ) from error
        if not error.sqlstate and _OF_POOLER in str(error):
            raise PrerequisiteMissing(
                f"no PostgreSQL server, but a pooler answers: {_reason(error, _OF_POOLER)}",
                where="source.url",
                hint=POOLER,
            ) from error
        what, hint, words = failure(error)
        raise SourceUnavailable(
            f"PostgreSQL {what}: {_reason(error, words)}", hint=error.diag.message_hint or hint
        ) from error


_OF_POOLER = "unsupported startup parameter"
"""Part of the message of PgBouncer."""


def mistaken(error: psycopg.OperationalError) -> str | None:
    """The parameter of the URL that libpq rejects, before it asks any server; None if it rejects
    none. Its value is not repeated: it may be the end of a password."""
    if not error.sqlstate:
        for pattern in _MISTAKES:
            if found := re.search(pattern, str(error)):
                return found["name"]
    return None


_MISTAKES = (
    r'invalid "?(?P<name>\w+)"? value: "',
    r'invalid integer value "[^"]*" for connection option "(?P<name>\w+)"',
    r'invalid (?P<name>port) number: "',
    r'definition of (?P<name>service) "[^"]*" not found',
    r'could not parse network (?P<name>address) "',
    r'weak (?P<name>sslmode) "',
)
"""Parts of messages of libpq about parameters."""


def failure(error: psycopg.OperationalError) -> tuple[str, str, str]:
    """What PostgreSQL does to us, what to do about it, and words of the line that says it."""
    if not error.sqlstate:
        # Errors while a connection is being established have no SQLSTATE, only a text.
        text = str(error)
        for words, hint in _REFUSALS.items():
            if words in text:
                return "rejected the login", hint, words
        if found := _SEVERITY.search(text):
            hint = _BY_STATE.get(_state_of(error) or "", "")
            return (
                ("rejected the login", hint, found[0]) if hint else (REJECTED, _SEE_LOG, found[0])
            )
        for words, hint in _ENCRYPTION.items():
            if words in text:
                return "is not reached as sslmode asks", hint, words
    if error.sqlstate is None or error.sqlstate[:2] in _NO_CONNECTION:
        return SILENT, "Check that it is running, and the host and port in the URL.", ""
    if error.sqlstate == _NO_LOCK:
        return "did not grant a lock in time", "See pg_locks for who holds it.", ""
    return "returned an error", _NOT_READY if error.sqlstate == _NOT_NOW else _SEE_LOG, ""


_NOT_READY = "`mirrorlake check` tests what the server needs, and says how to set it."
_SEE_LOG = "See the message and the log of the server."
_SEVERITY = re.compile(r"failed: \w+:  ")
"""Before a message of the server, as `FATAL`, in the language of the server; those of libpq have
none."""


_CHECK_LOGIN = (
    "Check the user and password in the URL. Special characters in the password must be "
    "percent-encoded: %40 for @, %2F for /, %3A for :."
)
_CHECK_DATABASE = "Check the database in the URL."
_REFUSALS = {
    "authentication failed": _CHECK_LOGIN,
    "no password supplied": "Add the password to the URL, or set PGPASSWORD.",
    "no encryption": "Allow the user, the database and this host in pg_hba.conf, or write "
    "sslmode=require in the URL, if connections have to be encrypted there.",
    "pg_hba.conf": "Allow the user, the database and this host in pg_hba.conf, and reload the "
    "server. Logical replication connections match the name of the database.",
    'FATAL:  role "': "Check the user in the URL.",
    'FATAL:  database "': _CHECK_DATABASE,
}
"""Part of the server's message to the remedy."""

_BY_STATE = {
    "28P01": _CHECK_LOGIN,
    "28000": "Check the user in the URL, and allow it, the database and this host in pg_hba.conf; "
    "or write sslmode=require in the URL, if connections have to be encrypted there.",
    "3D000": _CHECK_DATABASE,
}
"""SQLSTATE to the remedy, where the message is in another language."""


def _state_of(error: psycopg.OperationalError) -> str | None:
    """The SQLSTATE with which servers reject a connection; None where there is none, or several.

    libpq only shows it in a trace. So one more connection is attempted, for each message once.
    """
    text = str(error)
    if text not in _states:
        if len(_states) >= _MOST_STATES:
            _states.clear()
        states = set(_STATE.findall(_trace(error)))
        _states[text] = states.pop() if len(states) == 1 else None
    return _states[text]


_states: dict[str, str | None] = {}
_MOST_STATES = 100
_STATE = re.compile(r'\tErrorResponse\t.*? C "(\w{5})"')
_TRACE_SECONDS = 5.0


def _trace(error: psycopg.OperationalError) -> str:
    """What a connection like the one that failed exchanges with the server, empty where libpq
    traces none. It may hold a password: it goes to memory alone, and must not be shown."""
    if error.pgconn is None or not hasattr(os, "memfd_create"):
        return ""
    facts = {o.keyword.decode(): o.val.decode() for o in error.pgconn.info if o.val}
    end = time.monotonic() + _TRACE_SECONDS
    with os.fdopen(os.memfd_create("trace"), "rb") as messages:
        connection = pq.PGconn.connect_start(make_conninfo("", **facts).encode())
        try:
            connection.trace(messages.fileno())
            state = connection.connect_poll()
            while state in _WAITS and (left := end - time.monotonic()) > 0:
                waited = [connection.socket]
                reads = state is pq.PollingStatus.READING
                select.select(*((waited, []) if reads else ([], waited)), [], left)
                state = connection.connect_poll()
        except (psycopg.Error, OSError, ValueError):
            return ""
        finally:
            connection.untrace()  # before the file is closed: it writes what is left
            connection.finish()
        messages.seek(0)
        return messages.read().decode(errors="replace")


_WAITS = {pq.PollingStatus.READING, pq.PollingStatus.WRITING}


_ENCRYPTION = {
    "server does not support SSL": "Set ssl in postgresql.conf, or another sslmode in the URL.",
    "does not exist": "Check the paths in sslrootcert, sslcert and sslkey in the URL.",
    "certificate": "Check sslmode, sslrootcert, sslcert and sslkey in the URL.",
}
"""Part of libpq's message to the remedy."""


NEEDED_FUNCTIONS = (
    "pg_current_snapshot",
    "pg_current_wal_insert_lsn",
    "pg_current_wal_lsn",
    "pg_drop_replication_slot",
    "pg_get_replication_slots",  # of the view pg_replication_slots
    "pg_partition_tree",
    "pg_wal_lsn_diff",
)
"""That our user has to be allowed to execute."""

_FUNCTION = re.compile(rf"\b({'|'.join(NEEDED_FUNCTIONS)})\b")
_OF_POSITIONS = "xlogfuncs.c"
"""Where the server has the functions for positions in its log, which fail during recovery."""

_NO_LOCK, _NOT_NOW = "55P03", "55000"
_NO_CONNECTION = {"08", "57"}  # classes of SQLSTATE: broken, or ended by an operator


def _reason(error: psycopg.Error, words: str = "") -> str:
    """The message of the server or the socket; libpq names host and user here, never a password.
    words: what the message has. libpq may have tried several ways, as without encryption, and the
    hint is about one of them."""
    if error.diag.message_primary:
        return error.diag.message_primary
    lines = [line.strip().removeprefix("- ") for line in str(error).splitlines()]
    messages = [line for line in lines if line and not line.startswith("Is the server running")]
    named = [message for message in messages if words in message]
    return (named or messages)[-1].rstrip(".") if messages else "no reason given"
