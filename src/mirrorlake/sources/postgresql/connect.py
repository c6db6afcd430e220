"""Connections, with the settings that make the text of a value mean one thing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import conninfo, pq

from mirrorlake.errors import SourceUnavailable, UsageError

_TEXT_FORMS = {
    "datestyle": "ISO",
    "timezone": "UTC",
    "intervalstyle": "iso_8601",
    "extra_float_digits": "1",  # shortest text that reads back to the same number
    "bytea_output": "hex",
    "xmloption": "content",
    "lc_monetary": "C",
    "row_security": "off",  # rows that a policy hides are an error: they must not be left out
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
}
# A busy capture answers late, not never; the default of one minute would cut it off.
_STREAM_FORMS = _TEXT_FORMS | {"wal_sender_timeout": "300000"}

# A server that is cut off without a word is noticed within seconds, and not after hours.
_PATIENCE = {
    "connect_timeout": "10",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}

_SUCCESS = {pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.COPY_BOTH}

Connection = psycopg.Connection[tuple[Any, ...]]


def connect(url: str, *, autocommit: bool = True) -> Connection:
    """An ordinary connection. Raises UsageError, SourceUnavailable; neither repeats the URL."""
    facts = _facts(url, _TEXT_FORMS)
    with translated():
        return psycopg.connect(facts, autocommit=autocommit)


def connect_replication(url: str) -> Connection:
    """A connection that speaks the replication protocol (simple queries only)."""
    facts = _facts(url, _STREAM_FORMS, replication="database")
    with translated():
        connection = psycopg.connect(facts, autocommit=True)
    if _has_no_encoding(connection):
        simple_query(connection, "set client_encoding to 'SQL_ASCII'")
    return connection


@contextmanager
def any_text(connection: Connection) -> Iterator[None]:
    """Let texts pass that are not UTF-8, which only a database without encoding can hold.

    The server would refuse to send them, and one of them would stop all tables; we check them
    column by column. Not for queries whose texts become `str`.
    """
    if not _has_no_encoding(connection):
        yield
        return
    connection.execute("set client_encoding to 'SQL_ASCII'")
    yield
    connection.execute("set client_encoding to 'UTF8'")


def _has_no_encoding(connection: Connection) -> bool:
    return connection.pgconn.parameter_status(b"server_encoding") == b"SQL_ASCII"


def simple_query(connection: Connection, query: str) -> list[dict[str, str | None]]:
    """Run a replication command. Returns its rows as texts by column name."""
    with translated():
        result = connection.pgconn.exec_(query.encode())
        if result.status not in _SUCCESS:
            raise psycopg.errors.error_from_result(result)
    names = [(result.fname(i) or b"").decode() for i in range(result.nfields)]
    return [
        {name: _text(result.get_value(row, i)) for i, name in enumerate(names)}
        for row in range(result.ntuples)
    ]


@contextmanager
def translated() -> Iterator[None]:
    """Errors of the connection become ours; errors of a statement stay what they are."""
    try:
        yield
    except psycopg.OperationalError as error:
        if _lacks_replication(error):
            user = (error.pgconn.user if error.pgconn else b"").decode()
            raise SourceUnavailable(
                f"user {user} may not replicate",
                where="PostgreSQL",
                hint=f'Run `alter role "{user}" with replication` as a superuser.',
            ) from error
        what, hint = _told(error)
        raise SourceUnavailable(
            f"PostgreSQL {what}: {_reason(error)}", hint=error.diag.message_hint or hint
        ) from error


def _told(error: psycopg.OperationalError) -> tuple[str, str]:
    """What PostgreSQL does to us, and what to do about it."""
    if not error.sqlstate:
        # What ends a connection before it is one has no SQLSTATE, only words.
        text = str(error)
        for words, hint in _REFUSALS.items():
            if words in text:
                return "rejected the login", hint
        if "FATAL:" in text:
            return "rejected the connection", "See the message and the log of the server."
    if error.sqlstate is None or error.sqlstate[:2] in _NO_CONNECTION:
        return "does not answer", "Check that it is running, and the host and port in the URL."
    return "returned an error", "See the message and the log of the server."


_REFUSALS = {
    "authentication failed": "Check the user and password in the URL. Special characters in the "
    "password must be percent-encoded: %40 for @, %2F for /, %3A for :.",
    "no password supplied": "Add the password to the URL, or set PGPASSWORD.",
    "pg_hba.conf": "Allow the user, the database and this host in pg_hba.conf, and reload the "
    "server. Logical replication connections match the name of the database.",
    'FATAL:  role "': "Check the user in the URL.",
    'FATAL:  database "': "Check the database in the URL.",
}
"""Words of the server to the remedy."""


def _lacks_replication(error: psycopg.OperationalError) -> bool:
    """Whether a walsender was refused to a role without REPLICATION; before PostgreSQL 16 and
    since in other words."""
    text = str(error)
    return "start WAL sender" in text or "to start walsender" in text


_NO_CONNECTION = {"08", "57"}  # classes of SQLSTATE: broken, or ended by an operator


def _reason(error: psycopg.Error) -> str:
    """What the server or the socket said; libpq names host and user here, never a password."""
    if error.diag.message_primary:
        return error.diag.message_primary
    lines = [line.strip() for line in str(error).splitlines()]
    said = [line for line in lines if line and not line.startswith("Is the server running")]
    return said[-1].rstrip(".") if said else "no reason given"


def _facts(url: str, forms: dict[str, str], **more: str) -> str:
    """What to tell libpq. Raises UsageError."""
    # Not raised where the error is caught: that one repeats the URL, and would stay attached.
    given = _parsed(url)
    if given is None:
        raise UsageError(
            "the URL of the source is not valid",
            where="source.url",
            hint="Write it as postgresql://user:password@host:port/database, with special "
            "characters in the password percent-encoded: %40 for @, %2F for /, %3A for :.",
        )
    ours = " ".join(f"-c {name}={value}" for name, value in forms.items())
    options = f"{given['options']} {ours}" if given.get("options") else ours
    named = {"fallback_application_name": "mirrorlake", **_PATIENCE, **given, **more}
    return conninfo.make_conninfo(**{**named, "options": options, "client_encoding": "UTF8"})


def _parsed(url: str) -> dict[str, Any] | None:
    """The parts of the URL; None when it cannot be read, or was taken apart inside the password."""
    try:
        given = conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        return None
    torn = any("@" in str(given.get(part, "")) for part in ("host", "port", "dbname"))
    ports = str(given.get("port") or "0").split(",")
    return None if torn or not all(port.isdigit() or not port for port in ports) else given


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()
