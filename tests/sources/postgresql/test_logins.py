"""What is said where a connection is not what capture needs: behind a pooler, or not encrypted."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from threading import Thread

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from mirrorlake.errors import PrerequisiteMissing, SourceUnavailable
from mirrorlake.sources.base import CheckResult, CheckSeverity
from mirrorlake.sources.postgresql.connect import connect_replication
from mirrorlake.sources.postgresql.settings import PostgresSettings
from mirrorlake.sources.postgresql.source import PostgresSource
from tests.conftest import Database

_PLAIN = "sslmode=disable&gssencmode=disable"

Answer = Callable[[socket.socket], None]


@contextmanager
def listening(answer: Answer) -> Iterator[str]:
    """Its host and port; each connection is answered in a thread."""

    def accept() -> None:
        with suppress(OSError):
            while True:
                Thread(target=answer, args=[listener.accept()[0]], daemon=True).start()

    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def startup(client: socket.socket) -> bytes:
    """The first message of a client, without its length."""
    (size,) = struct.unpack("!i", client.recv(4, socket.MSG_WAITALL))
    return client.recv(size - 4, socket.MSG_WAITALL)


def without_options(server_socket: str) -> Answer:
    """As PgBouncer with `ignore_startup_parameters = options`."""

    def answer(client: socket.socket) -> None:
        message = startup(client)
        parts = message[4:].split(b"\0")
        pairs = zip(parts[::2], parts[1::2], strict=False)
        kept = b"".join(name + b"\0" + value + b"\0" for name, value in pairs if name != b"options")
        body = message[:4] + kept.rstrip(b"\0") + b"\0\0"
        server = socket.socket(socket.AF_UNIX)
        server.connect(server_socket)
        server.sendall(struct.pack("!i", len(body) + 4) + body)
        Thread(target=relay, args=[server, client], daemon=True).start()
        relay(client, server)

    return answer


def relay(here: socket.socket, there: socket.socket) -> None:
    with suppress(OSError):
        while data := here.recv(65536):
            there.sendall(data)
        there.shutdown(socket.SHUT_WR)


def refusing(*messages: str, severity: str = "FATAL", state: str = "28000") -> Answer:
    """Rejects each connection with all of these, one after another. severity: in the language of
    the server."""
    left = list(messages)

    def answer(client: socket.socket) -> None:
        startup(client)
        text = left.pop(0) if len(left) > 1 else left[0]
        fields = f"S{severity}\0VFATAL\0C{state}\0M{text}\0\0".encode()
        client.sendall(b"E" + struct.pack("!i", len(fields) + 4) + fields)
        client.close()

    return answer


def checked(url: str) -> CheckResult:
    (finding,) = PostgresSource(PostgresSettings(url)).check()
    assert finding.severity is CheckSeverity.ERROR
    return finding


@pytest.mark.postgres
def test_a_pooler_that_drops_the_settings_of_a_session_is_refused(database: Database) -> None:
    facts = conninfo_to_dict(database.url)
    login = f"{facts['user']}:{facts['password']}"
    with listening(without_options(f"{facts['host']}/.s.PGSQL.5432")) as place:
        url = f"postgresql://{login}@{place}/{facts['dbname']}?{_PLAIN}"
        with psycopg.connect(url) as reached:  # an ordinary program gets through
            assert reached.execute("show intervalstyle").fetchone() == ("postgres",)
        finding = checked(url)
        assert "IntervalStyle is postgres, and not iso_8601" in finding.message
        assert "pooler" in finding.remedy
        with pytest.raises(PrerequisiteMissing, match="settings of a session"):
            PostgresSource(PostgresSettings(url)).discover()
        with pytest.raises(PrerequisiteMissing, match="settings of a session"):
            connect_replication(url)


def test_a_pooler_that_rejects_the_settings_of_a_session_is_no_outage() -> None:
    with listening(refusing("unsupported startup parameter: options")) as place:
        url = f"postgresql://u:hush@{place}/db?{_PLAIN}"
        finding = checked(url)
        assert "a pooler answers" in finding.message
        assert "host and port" in finding.remedy
        with pytest.raises(PrerequisiteMissing, match="a pooler answers"):
            PostgresSource(PostgresSettings(url)).discover()


def test_a_server_that_wants_encryption_is_named_with_the_setting() -> None:
    text = 'no pg_hba.conf entry for host "10.0.0.1", user "u", database "db", no encryption'
    with listening(refusing(text)) as place:
        finding = checked(f"postgresql://u:hush@{place}/db?{_PLAIN}")
    assert "sslmode=require" in finding.remedy


@pytest.mark.parametrize(
    ("state", "severity", "text", "remedy"),
    [
        ("3D000", "ВАЖНО", 'база данных "db" не существует', "Check the database in the URL."),
        ("28P01", "FATAL", "Passwort-Authentifizierung für »u« fehlgeschlagen", "%40 for @"),
        ("28000", "FATAL", "la connexion de u est refusée", "in pg_hba.conf; or write sslmode="),
    ],
)
def test_a_server_rejects_a_login_in_its_own_language(
    state: str, severity: str, text: str, remedy: str
) -> None:
    attempts: list[str] = []

    def answer(client: socket.socket) -> None:
        attempts.append(text)
        refusing(text, severity=severity, state=state)(client)

    with listening(answer) as place:
        for _ in range(3):
            finding = checked(f"postgresql://u:hush@{place}/db?{_PLAIN}")
            assert finding.message.startswith("PostgreSQL rejected the login")
            assert text in finding.message
            assert remedy in finding.remedy
            assert "hush" not in finding.message + finding.remedy
    assert len(attempts) == 4  # a trace of one more attempt says the SQLSTATE


def test_a_server_rejects_a_connection_for_what_is_no_matter_of_the_login() -> None:
    text = "zu viele Verbindungen"
    with listening(refusing(text, state="53300")) as place:
        finding = checked(f"postgresql://u:hush@{place}/db?{_PLAIN}")
    assert finding.message.startswith("PostgreSQL rejected the connection")
    assert (text in finding.message, finding.remedy) == (
        True,
        "See the message and the log of the server.",
    )


def test_of_several_attempts_the_one_is_told_to_which_the_hint_belongs() -> None:
    """libpq tries an address again without encryption, or the next one."""
    wrong = 'password authentication failed for user "u"'
    other = 'no pg_hba.conf entry for host "10.0.0.1", user "u", database "db", no encryption'
    with listening(refusing(wrong)) as one, listening(refusing(other)) as two:
        hosts = f"u:hush@{one},{two}"
        finding = checked(f"postgresql://{hosts}/db?{_PLAIN}")
    assert wrong in finding.message
    assert "user and password" in finding.remedy


def test_a_missing_certificate_is_named() -> None:
    def agree(client: socket.socket) -> None:
        startup(client)
        client.sendall(b"S")  # to the request for encryption

    with listening(agree) as place:
        facts = "sslmode=verify-full&sslrootcert=/none/root.crt&gssencmode=disable"
        url = f"postgresql://u@{place}/db?{facts}"
        with pytest.raises(SourceUnavailable, match=r"/none/root\.crt.* does not exist"):
            PostgresSource(PostgresSettings(url)).discover()
