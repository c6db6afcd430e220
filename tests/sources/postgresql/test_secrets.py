"""No error says a password, nor a part of one that was not written as a URL asks for."""

from __future__ import annotations

import socket
import traceback
from collections.abc import Iterator
from contextlib import closing
from threading import Thread

import psycopg
import pytest

from mirrorlake.demo.server import EmbeddedServer
from mirrorlake.errors import MirrorlakeError, SourceUnavailable, UsageError
from mirrorlake.model.position import Lsn
from mirrorlake.sources.base import CheckSeverity
from mirrorlake.sources.postgresql.settings import PostgresSettings
from mirrorlake.sources.postgresql.source import PostgresSource

MISTAKES = [
    "postgresql://u:hush@hidden@localhost:1/db",
    "postgresql://u:hush/hidden@localhost:1/db",
    "postgresql://u:hush:hidden@localhost:1/db",
    "postgresql://u:hush hidden@localhost:1/db",
    "postgresql://u:hush%hidden@localhost:1/db",
    "postgresql://u:hush#hidden@localhost:1/db",
    "postgresql://u:hush?hidden@localhost:1/db",
    "postgresql://u:hush&hidden@localhost:1/db",
    "postgresql://u:hushhidden@[localhost:1/db",
    "postgresql://u:hushhidden@localhost:port/db",
    "postgresql://u:hushhidden@localhost:1/db?sslmod=no",
    "postgresql://localhost:1/db?password=hush&hidden",
    "postgresql://u:hush?sslmode=hidden@localhost:1/db",
    "postgresql://u:hush?user=hidden@localhost:1/db",
    *(
        f"postgresql://u:hush@localhost:1/db?{name}=hidden"
        for name in ("sslmode", "keepalives", "service", "hostaddr", "options", "passfile")
    ),
    "postgresql//u:hushhidden@localhost:1/db",
    "u:hushhidden@localhost:1/db",
    "host=localhost port=1 password=hush hidden",
    "host=localhost port=1 password='hush hidden",
    "postgresql://u:hushhidden@localhost:1/db",
]


RULES = """
local all guarded scram-sha-256
local all all trust
local replication all trust
"""
"""One user is asked for a password."""


@pytest.fixture(scope="module")
def asking() -> Iterator[EmbeddedServer]:
    """A server that asks the user `guarded` for a password."""
    with EmbeddedServer(18) as server:
        server.halt()
        rules = server.folder / "data" / "pg_hba.conf"
        rules.write_text(RULES)
        server.start()
        with psycopg.connect(server.url, autocommit=True) as sql:
            sql.execute("create role guarded login superuser password 'right-hushhidden'")
        yield server


def login(server: EmbeddedServer, user: str, database: str = "postgres") -> str:
    """The URL for a user, with a password or without."""
    return server.url.replace(f"postgres:{server.password}@/postgres", f"{user}@/{database}")


def everything_said(error: BaseException) -> str:
    """All that a log, a report or a console could show of an error and of those behind it."""
    said = [*traceback.format_exception(error)]
    behind: BaseException | None = error
    while behind is not None:
        said += [str(behind), repr(behind), repr(behind.args)]
        said += [repr(behind.facts())] if isinstance(behind, MirrorlakeError) else []
        behind = behind.__cause__ or behind.__context__
    return "\n".join(said)


@pytest.mark.parametrize("url", MISTAKES)
def test_a_url_that_leads_nowhere_is_not_repeated(url: str) -> None:
    source = PostgresSource(PostgresSettings(url))
    with pytest.raises((UsageError, SourceUnavailable)) as caught:
        source.discover()
    said = everything_said(caught.value)
    assert "hush" not in said
    assert "hidden" not in said


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("localhost:1/db?sslmode=zzz", "sslmode"),
        ("localhost:1/db?target_session_attrs=zzz", "target_session_attrs"),
        ("localhost:1/db?ssl_min_protocol_version=zzz", "ssl_min_protocol_version"),
        ("localhost:1/db?require_auth=zzz", "require_auth"),
        ("localhost:1/db?keepalives=zzz", "keepalives"),
        ("localhost:1/db?service=zzz", "service"),
        ("localhost:1/db?hostaddr=zzz", "address"),
        ("localhost:99999/db", "port"),
        ("localhost:0/db", "port"),
    ],
)
def test_a_parameter_that_is_not_valid_is_no_outage(given: str, named: str) -> None:
    source = PostgresSource(PostgresSettings(f"postgresql://u@{given}"))
    with pytest.raises(UsageError, match=f"the {named} in the URL of the source") as caught:
        source.discover()
    assert "zzz" not in everything_said(caught.value)


def test_a_server_without_encryption_is_no_outage() -> None:
    """A server that answers the request for it as PostgreSQL does without `ssl`."""

    def answer() -> None:
        with closing(listening.accept()[0]) as connection:
            connection.recv(8)
            connection.sendall(b"N")

    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        Thread(target=answer, daemon=True).start()
        there = f"127.0.0.1:{listening.getsockname()[1]}"
        url = f"postgresql://u@{there}/db?sslmode=require&gssencmode=disable"
        (finding,) = PostgresSource(PostgresSettings(url)).check()
    assert "is not reached as sslmode asks" in finding.message
    assert "Set ssl in postgresql.conf" in finding.remedy


@pytest.mark.parametrize("url", MISTAKES)
def test_a_check_does_not_repeat_the_url(url: str) -> None:
    (finding,) = PostgresSource(PostgresSettings(url)).check()
    assert finding.severity is CheckSeverity.ERROR
    assert "hush" not in repr(finding)
    assert "hidden" not in repr(finding)


@pytest.mark.postgres
def test_a_wrong_password_is_not_repeated(asking: EmbeddedServer) -> None:
    url = login(asking, "guarded:wrong-hushhidden")
    with pytest.raises(SourceUnavailable, match="password authentication failed") as caught:
        PostgresSource(PostgresSettings(url)).identity()
    assert "hushhidden" not in everything_said(caught.value)


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("user", "database", "hint"),
    [
        ("guarded:wrong", "postgres", "the user and password"),
        ("guarded", "postgres", "Add the password"),
        ("nobody_here", "postgres", "Check the user"),
        ("postgres", "no_such", "Check the database"),
    ],
)
def test_a_refused_login_is_told_as_that_with_its_remedy(
    asking: EmbeddedServer, user: str, database: str, hint: str
) -> None:
    url = login(asking, user, database)
    (finding,) = PostgresSource(PostgresSettings(url)).check()
    assert finding.message.startswith("PostgreSQL rejected the login")
    assert hint in finding.remedy


@pytest.mark.postgres
def test_a_role_without_replication_is_named_with_its_remedy(asking: EmbeddedServer) -> None:
    with psycopg.connect(asking.url, autocommit=True) as sql:
        sql.execute("create role plain login")
    url = login(asking, "plain")
    with pytest.raises(SourceUnavailable, match=r"^user plain may not replicate") as caught:
        PostgresSource(PostgresSettings(url)).identity()
    assert 'alter role "plain" with replication' in caught.value.hint


@pytest.mark.postgres
def test_a_right_password_is_not_repeated_when_a_statement_fails(asking: EmbeddedServer) -> None:
    url = login(asking, "guarded:right-hushhidden")
    source = PostgresSource(PostgresSettings(url, slot="no_such_slot"))
    with pytest.raises(Exception, match="no_such_slot") as caught:
        source.stream([], Lsn(0))
    assert "hushhidden" not in everything_said(caught.value)


def test_settings_do_not_print_the_url() -> None:
    settings = PostgresSettings("postgresql://u:hushhidden@localhost/db")
    assert "hushhidden" not in repr(settings)
    assert "hushhidden" not in str(settings)
