"""Connections, with the settings that make the text of a value mean one thing."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from math import inf
from typing import Any, TypeVar
from weakref import WeakSet

import psycopg
from psycopg import conninfo, pq

from mirrorlake.errors import PrerequisiteMissing, SourceUnavailable, UsageError
from mirrorlake.sources.base import AwaitedTransaction
from mirrorlake.sources.postgresql import foreign_text
from mirrorlake.sources.postgresql.foreign_text import has_no_encoding
from mirrorlake.sources.postgresql.refusals import (
    POOLER,
    REJECTED,
    SILENT,
    failure,
    mistaken,
    translated,
)

_IDLE_FORMS = {
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
}
"""Of connections that wait, as for the end of a load."""

_TEXT_FORMS = {
    "datestyle": "ISO",
    "timezone": "UTC",
    "intervalstyle": "iso_8601",
    "extra_float_digits": "1",  # shortest text that reads back to the same number
    "bytea_output": "hex",
    "xmloption": "content",
    "quote_all_identifiers": "off",  # the text of regclass and the like
    "lc_monetary": "C",
    "row_security": "off",  # rows that a policy hides are an error: they must not be left out
    "statement_timeout": "0",
    # What waits for a lock makes wait who comes behind it. See also `autovacuum`.
    "lock_timeout": "1s",
    **_IDLE_FORMS,
}
_PATH = '"$user",public'
"""Names as values are written relative to this `search_path`, the default of PostgreSQL."""

NAMES_ALIKE = f"set local search_path = {_PATH}"
"""Before values are read. Not for a whole session: a trigger of others for what it makes or alters
finds its tables by the path of the database, and so do operators of extensions."""

# A busy capture answers late, not never; the default of one minute would cut it off.
# A new slot waits for running transactions, and blocks nothing meanwhile.
_STREAM_FORMS = _TEXT_FORMS | {
    "wal_sender_timeout": "300000",
    "lock_timeout": "0",
    "search_path": _PATH,
}

# A server that becomes unreachable silently is noticed within seconds, and not after hours.
_PATIENCE = {
    "connect_timeout": "10",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}

_QUIET_SECONDS = 2.25  # a stream is answered every two seconds at least
_ANSWER_SECONDS = 2  # for a question; connections are not given less
_STALLED_SECONDS = 10  # then a connection may never recover
_SPARE_SECONDS = 60.0
_CANCEL_SECONDS = 1.0  # until it is cancelled again

WAIT_SECONDS = 5.0
"""For which a new slot waits without a word: transactions take their time."""

_LOCK_ATTEMPTS = 10
_LOCK_PAUSE = 1.0  # seconds without a place in the queue

_SUCCESS = {pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.COPY_BOTH}

Connection = psycopg.Connection[tuple[Any, ...]]

Result = TypeVar("Result")


def connect(url: str, *, autocommit: bool = True) -> Connection:
    """An ordinary connection. Raises UsageError, SourceUnavailable, and PrerequisiteMissing behind
    a pooler; none repeats the URL."""
    connection = _connected(_facts(url, _TEXT_FORMS))
    _let_last(connection)
    foreign_text.prepare(connection)
    connection.autocommit = autocommit
    return connection


def connect_replication(url: str) -> Connection:
    """A replication connection (simple queries only). Raises as `connect`."""
    try:
        connection = _connected(_facts(url, _STREAM_FORMS, replication="database"))
    except SourceUnavailable as error:
        cause = error.__cause__
        if isinstance(cause, psycopg.OperationalError) and failure(cause)[0] == REJECTED:
            _check_may_replicate(url, error)
        raise
    _let_last(connection)
    if has_no_encoding(connection):
        simple_query(connection, "set client_encoding to 'SQL_ASCII'")
    return connection


def _check_may_replicate(url: str, refused: SourceUnavailable) -> None:
    """Raises SourceUnavailable, because of `refused`: why is said by the server in its language."""
    with closing(connect(url)) as connection:
        if may_replicate(connection):
            return
        user = connection.info.user
    raise SourceUnavailable(
        f"user {user} may not replicate",
        where="PostgreSQL",
        hint=f'Run `alter role "{user}" with replication` as a superuser.',
    ) from refused


def may_replicate(connection: Connection) -> bool:
    """Whether our user may open a replication connection, also by the role that RDS has for it."""
    query = (
        "select from pg_roles where rolname = current_user and (rolsuper or rolreplication) "
        "or rolname = 'rds_replication' and pg_has_role(current_user, oid, 'usage')"
    )
    return connection.execute(query).fetchone() is not None


def _let_last(connection: Connection) -> None:
    """Let transactions last: that of a load is as long as the load. Servers before 17 do not know
    the setting, and reject who names it when connecting. Raises SourceUnavailable."""
    if connection.info.server_version >= 170_000:
        simple_query(connection, "set transaction_timeout = 0")


def _connected(facts: str) -> Connection:
    """With autocommit. Raises UsageError, SourceUnavailable, PrerequisiteMissing."""
    # The first is not raised where the error is caught, which may repeat a part of a password.
    try:
        connection = psycopg.connect(facts, autocommit=True)
    except psycopg.OperationalError as error:
        parameter = mistaken(error)
        if parameter is None:
            with translated():
                raise
    else:
        _check_session(connection)
        return connection
    raise UsageError(
        f"the {parameter} in the URL of the source is not valid",
        where="source.url",
        hint="The parameters and their values are those of libpq, which takes what the URL lacks "
        "from variables such as PGSSLMODE. Special characters in the password must be "
        "percent-encoded: %3F for ?.",
    )


def _check_session(connection: Connection) -> None:
    """A pooler may drop the settings of a session: values would come in another form than they are
    read, and what a policy hides would be left out. Raises PrerequisiteMissing."""
    for name in _REPORTED:
        given = connection.info.parameter_status(name)
        if given is not None and given.split(",")[0] != _TEXT_FORMS[name.lower()]:
            connection.close()
            raise PrerequisiteMissing(
                f"the settings of a session are not kept: {name} is {given}, and not "
                f"{_TEXT_FORMS[name.lower()]}",
                where="source.url",
                hint=POOLER,
            )


_REPORTED = ("IntervalStyle", "DateStyle", "TimeZone")
"""Settings of `_TEXT_FORMS` that each server reports when a session begins."""


class SlotWaits(SourceUnavailable):
    """A slot was not made in time, because transactions of others are open."""


class OpenConnections:
    """Connections that can be ended together, also while other threads wait for an answer on
    them: on a connection that stalls none may ever come. For several threads."""

    def __init__(self) -> None:
        self._open: WeakSet[Connection] = WeakSet()
        self._lock = threading.Lock()
        self.heard = -inf
        """When data last came on one of them, in monotonic seconds: of those that copy tables."""
        self._making: dict[int, tuple[Connection, float]] = {}  # slots: since when, by process

    def add(self, connection: Connection) -> Connection:
        with self._lock:
            self._open.add(connection)
        return connection

    @contextmanager
    def making_slot(self, connection: Connection, within: float | None = None) -> Iterator[None]:
        """A slot is made on this connection, for which the server may wait without an end. within:
        seconds after which it is cancelled, and SlotWaits raised."""
        process = connection.info.backend_pid
        is_made, is_over = threading.Event(), threading.Event()

        def give_up() -> None:
            if not is_made.wait(within):
                is_over.set()
                _cancel(connection)
                while not is_made.wait(_CANCEL_SECONDS):  # it may have been lost
                    _cancel(connection)

        thread = threading.Thread(target=give_up, daemon=True)
        self._making[process] = connection, time.monotonic()
        if within is not None:
            thread.start()
        try:
            yield
        except SourceUnavailable as error:
            if is_over.is_set() and isinstance(error.__cause__, psycopg.errors.QueryCanceled):
                raise SlotWaits("transactions of others are open", where="PostgreSQL") from error
            raise
        finally:
            del self._making[process]
            is_made.set()
            if within is not None:
                thread.join()  # what is run on the connection next is not cancelled

    def waiting(self, seconds: float) -> list[int]:
        """The server processes that have been making a slot for so long."""
        now = time.monotonic()
        return [p for p, (_, since) in [*self._making.items()] if now - since >= seconds]

    def make_no_slot(self) -> None:
        """Cancel the slots that are made. A server that still waits would keep their names."""
        for connection, _since in [*self._making.values()]:
            _cancel(connection)

    def hear(self) -> None:
        """Data has come."""
        self.heard = time.monotonic()

    def cut(self) -> None:
        """Who waits, or asks later, gets psycopg.OperationalError."""
        with self._lock:
            found = list(self._open)
            self._open.clear()
        for connection in found:
            # The thread that waits closes the connection itself.
            with (
                suppress(OSError, psycopg.Error),
                closing(socket.socket(fileno=os.dup(connection.fileno()))) as same,
            ):
                same.shutdown(socket.SHUT_RDWR)


def _cancel(connection: Connection) -> None:
    with suppress(psycopg.Error):
        connection.cancel_safe(timeout=_ANSWER_SECONDS)


def patiently(act: Callable[[], Result], *, forever: bool = False) -> Result:
    """Do something for which a lock is needed, again while it is not granted in time: some
    times, or `forever`. Raises psycopg.errors.LockNotAvailable."""
    attempts = 1
    while True:
        try:
            return act()
        except psycopg.errors.LockNotAvailable:
            if attempts == _LOCK_ATTEMPTS and not forever:
                raise
        attempts += 1
        time.sleep(_LOCK_PAUSE)


LookAtWaiting = Callable[[Connection, Sequence[int]], AwaitedTransaction | None]
"""For which transaction one of these server processes waits. Raises psycopg.Error."""


class PostgresPulse:
    """A `Pulse`. Its connection is opened by a check that needs it, and closed when none has
    needed it for a minute."""

    def __init__(
        self,
        url: str,
        peer: psycopg.ConnectionInfo,
        heard: Callable[[], float],
        opened: OpenConnections,
        look: LookAtWaiting = lambda _connection, _processes: None,
    ) -> None:
        """peer: of a connection to the server; its resolved address is used, because resolving a
        name may be slow. heard: when the server last sent something, in monotonic seconds. opened:
        the connections of the source; look: for `awaited`."""
        address = {"host": peer.host, "hostaddr": peer.hostaddr, "port": str(peer.port)}
        more = {**address, "connect_timeout": str(_ANSWER_SECONDS)}
        self._facts = _facts(url, _IDLE_FORMS, application_name="mirrorlake pulse", **more)
        self._heard, self._answered, self._queried = heard, -inf, -inf
        self._opened, self._look = opened, look
        self._connection: Connection | None = None

    def awaited(self) -> AwaitedTransaction | None:
        if not (waiting := self._opened.waiting(WAIT_SECONDS)):
            return None
        self._queried = time.monotonic()
        try:
            if self._connection is None:
                self._query()
            assert self._connection is not None
            return self._look(self._connection, waiting)
        except psycopg.Error:  # whether the server answers is for `check` to say
            self.close()
            return None

    def check(self) -> float:
        now = time.monotonic()
        left = max(self._heard(), self._opened.heard, self._answered) + _QUIET_SECONDS - now
        if left > 0:
            if now - self._queried > _SPARE_SECONDS:
                self.close()
            return left
        self._queried = now
        try:
            with translated():
                self._query()
        except SourceUnavailable as error:
            self.close()
            if self._opened.heard > now:
                return _QUIET_SECONDS  # too busy for another login, with the rows of a table
            refused = error.__cause__
            if isinstance(refused, psycopg.OperationalError) and failure(refused)[0] == SILENT:
                raise
        self._answered = time.monotonic()
        return _QUIET_SECONDS

    def stop_waiting(self) -> None:
        self._opened.make_no_slot()

    def give_up(self) -> None:
        self._opened.cut()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _query(self) -> None:
        if self._connection is None:
            self._connection = psycopg.connect(self._facts, autocommit=True)
            return
        self._connection.pgconn.send_query(b"select 1")
        _results(self._connection, _ANSWER_SECONDS)


def is_found(connection: Connection, query: str, value: str) -> bool:
    """Whether a query with the parameter $1 has a row. For what is asked all the time: a connection
    that stalls without an end is given up (psycopg.OperationalError)."""
    return bool(answer(connection, query, value))


def answer(
    connection: Connection, query: str, value: str, seconds: float = _STALLED_SECONDS
) -> list[dict[str, str | None]]:
    """The rows of a query with the parameter $1, as texts by column name. Raises
    psycopg.OperationalError where they do not come in time."""
    connection.pgconn.send_query_params(query.encode(), [value.encode()])
    results = _results(connection, seconds)
    for result in results:
        if result.status not in _SUCCESS:
            raise _error_of(result)
    return [row for result in results for row in _rows(result)]


def _rows(result: pq.abc.PGresult) -> list[dict[str, str | None]]:
    names = [(result.fname(i) or b"").decode() for i in range(result.nfields)]
    return [
        {name: _text(result.get_value(row, i)) for i, name in enumerate(names)}
        for row in range(result.ntuples)
    ]


def _results(connection: Connection, seconds: float = inf) -> list[pq.abc.PGresult]:
    """The results of what was sent, if they come in time; otherwise psycopg.OperationalError."""
    server, until = connection.pgconn, time.monotonic() + seconds
    while server.is_busy():
        left = None if seconds == inf else max(until - time.monotonic(), 0.0)
        if not select.select([server.socket], [], [], left)[0]:
            raise psycopg.OperationalError("no answer came in time")
        server.consume_input()
    results = []
    while (result := server.get_result()) is not None:
        results.append(result)
        if result.status == pq.ExecStatus.COPY_BOTH:  # what follows is no result
            break
    return results


def _error_of(result: pq.abc.PGresult) -> psycopg.Error:
    """The error of the server, or of the connection, which has no code."""
    found = psycopg.errors.error_from_result(result)
    return found if found.sqlstate else psycopg.OperationalError(str(found))


@contextmanager
def any_text(connection: Connection) -> Iterator[None]:
    """Let texts pass that are not UTF-8, which only a database without encoding can hold.

    The server would refuse to send them, and one of them would stop all tables; we check them
    column by column. For texts of the catalog there is `foreign_texts`.
    """
    if not has_no_encoding(connection):
        yield
        return
    connection.execute("set client_encoding to 'SQL_ASCII'")
    yield
    connection.execute("set client_encoding to 'UTF8'")


def simple_query(connection: Connection, query: str) -> list[dict[str, str | None]]:
    """Run a replication command. Returns its rows as texts by column name."""
    with translated():
        # Python waits, and not libpq: signals are handled meanwhile.
        connection.pgconn.send_query(query.encode())
        # A connection that was ended has the error of the server, and one of its own.
        (result, *_more) = _results(connection)
        if result.status not in _SUCCESS:
            raise _error_of(result)
    return _rows(result)


def _facts(url: str, forms: dict[str, str], **more: str) -> str:
    """The connection parameters for libpq. Raises UsageError."""
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
