"""What tests share: real servers, a real Spark, and nothing pretended."""

from __future__ import annotations

import gc
import itertools
import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
import structlog
from hypothesis import HealthCheck, settings

from mirrorlake.demo.server import EmbeddedServer
from mirrorlake.sources.postgresql.settings import PostgresSettings, TriggerPolicy
from mirrorlake.storage.local import LocalStore
from tests import profiles
from tests.azure_blobs import AzureBlobs, azure_blobs
from tests.doubles.google_storage import GoogleStorage, google_storage
from tests.objects import S3Server, s3_server
from tests.older_postgres import install_of

# The suites of the contracts are no test modules themselves, and yet assert as they do.
pytest.register_assert_rewrite("tests.conformance")

settings.register_profile(
    "long",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    max_examples=2_000,
)
# These try the same examples each time, so that they say something about a change; the long run
# looks for new ones.
settings.register_profile(
    "default",
    parent=settings.get_profile("long"),
    max_examples=100,
    derandomize=True,
    database=None,
)
settings.register_profile("quick", parent=settings.get_profile("default"), max_examples=25)
settings.register_profile("rest", parent=settings.get_profile("default"))
settings.register_profile("fuzz", parent=settings.get_profile("long"), max_examples=20_000)
settings.load_profile(profiles.ACTIVE)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """The millions of objects of modules and tests stay until the end: the garbage collector does
    not look at them while they are made, and never afterwards."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_itemcollected(item: pytest.Item) -> None:
    """The tests of Spark run in one process of make test: a session takes half a minute to start
    beside another one, and gets faster with use. All of them take less time than the others.

    As they are collected: xdist reads the groups before it is the turn of the hook below."""
    if profiles.ACTIVE == "quick" and item.get_closest_marker("spark"):
        others = [mark for mark in item.own_markers if mark.name != "xdist_group"]
        item.own_markers[:] = [*others, pytest.mark.xdist_group("spark").mark]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What make test has run the same way is not run again by what follows it in make test-full."""
    if profiles.ACTIVE == "rest":
        again = [item for item in items if profiles.same_in_quick(item)]
        config.hook.pytest_deselected(items=again)
        left = set(items) - set(again)
        items[:] = [item for item in items if item in left]
    _servers_first(items)


def _servers_first(items: list[pytest.Item]) -> None:
    """Modules with tests that need a server, a JVM or processes go before all others: of two
    processes none is left alone with tests of a minute at the end. A module stays together."""

    def module(item: pytest.Item) -> str:
        return item.nodeid.partition("::")[0]

    long = {module(i) for i in items if any(map(i.get_closest_marker, SERVERS))}
    items.sort(key=lambda item: module(item) not in long)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The scenarios of a suite are those of its class; of which so many are part of make test. They
    are played together, and so in one process."""
    if "scenario" in metafunc.fixturenames:
        from tests.conformance.apply.scenario import parameters

        suite = metafunc.cls
        together = pytest.mark.xdist_group(f"{suite.__module__}.{suite.__name__}")
        found = parameters(suite.scenarios, together)
        metafunc.parametrize("scenario", profiles.some(found, suite.quick or len(found)))


SERVERS = ("spark", "postgres", "crash")
"""Markers of tests that take seconds."""

VERSIONS = [
    18,
    pytest.param(16, marks=pytest.mark.full),
    *(pytest.param(version, marks=pytest.mark.long) for version in (14, 15, 17)),
]
"""Of PostgreSQL: one in make test, one more in test-full, the others in test-long."""

_numbers = itertools.count(1)
_folders = itertools.count(1)


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """A command logs to the standard error of its own test, which is closed for the next."""
    yield
    structlog.reset_defaults()


@dataclass(frozen=True)
class Database:
    """A database of its own on a running server, and a connection to it."""

    url: str
    server: EmbeddedServer
    sql: psycopg.Connection
    name: str

    def execute(self, *statements: str) -> None:
        for statement in statements:
            self.sql.execute(statement)

    def url_as(self, user: str) -> str:
        """For a role whose password is its name."""
        return re.sub(r"postgres(:[^@]*)?@", f"{user}:{user}@", self.url, count=1)

    def settings(self, **changes: object) -> PostgresSettings:
        """Settings with a slot and a publication that no other test has, and no event trigger."""
        own = {
            "slot": f"slot_{self.name}",
            "publication": f"pub_{self.name}",
            "event_trigger": TriggerPolicy.NEVER,  # as where our user is no superuser
            "binary": profiles.BINARY,
        }
        return PostgresSettings(self.url, **{**own, **changes})


def _server(version: int, install: Path | None = None) -> Iterator[EmbeddedServer]:
    settings = {"max_prepared_transactions": "8"}
    with EmbeddedServer(version, settings, install) as server:
        yield server


@pytest.fixture(scope="session")
def postgres18() -> Iterator[EmbeddedServer]:
    yield from _server(18)


@pytest.fixture(scope="session")
def postgres16() -> Iterator[EmbeddedServer]:
    yield from _server(16)


@pytest.fixture(scope="session")
def postgres17() -> Iterator[EmbeddedServer]:
    yield from _server(17, install_of(17))


@pytest.fixture(scope="session")
def postgres15() -> Iterator[EmbeddedServer]:
    yield from _server(15, install_of(15))


@pytest.fixture(scope="session")
def postgres14() -> Iterator[EmbeddedServer]:
    yield from _server(14, install_of(14))


@pytest.fixture(scope="session")
def mended14() -> Iterator[EmbeddedServer]:
    yield from _server(14, install_of(14, mended=True))


@pytest.fixture(scope="session")
def mended17() -> Iterator[EmbeddedServer]:
    yield from _server(17, install_of(17, mended=True))


def database_on(server: EmbeddedServer, options: str = "") -> Iterator[Database]:
    """A new database; its slots and itself are gone afterwards."""
    name = f"test{next(_numbers)}"
    with psycopg.connect(server.url, autocommit=True) as admin:
        admin.execute(f"create database {name} {options}")
        url = server.url.replace("/postgres?", f"/{name}?")
        with psycopg.connect(url, autocommit=True) as sql:
            yield Database(url, server, sql, name)
        # Who is still connected may hold a slot, and a service of the test, which ends after the
        # database, would connect again.
        admin.execute(f"alter database {name} allow_connections false")
        for _attempt in range(6):
            if not admin.execute(
                "select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = %s",
                [name],
            ).fetchone():
                break
        admin.execute(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots "
            "where database = %s",
            [name],
        )
        admin.execute(f"drop database {name} with (force)")


@pytest.fixture
def database(postgres18: EmbeddedServer) -> Iterator[Database]:
    """A database on PostgreSQL 18."""
    yield from database_on(postgres18)


@pytest.fixture(params=VERSIONS)
def any_database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A database on each version."""
    yield from database_on(request.getfixturevalue(f"postgres{request.param}"))


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As pytest's, which looks through the folders of all tests before, thousands, for a number
    that is free."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    return tmp_path_factory.mktemp(f"{name}{next(_folders)}", numbered=False)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    """A store below an empty folder."""
    return LocalStore(tmp_path / "root")


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """The one S3 of the run; each test takes buckets of its own."""
    with s3_server() as server:
        yield server


@pytest.fixture(scope="session")
def azure() -> Iterator[AzureBlobs]:
    """The one Azure Blob Storage of the run; each test takes containers of its own."""
    with azure_blobs() as blobs:
        yield blobs


@pytest.fixture(scope="session")
def google() -> Iterator[GoogleStorage]:
    """The one Google Cloud Storage of the run; each test takes buckets of its own."""
    with google_storage() as storage:
        yield storage


@pytest.fixture(scope="session")
def spark(s3: S3Server):
    """The one Spark session of the run, which has a way to the one S3 too."""
    from mirrorlake.spark.session.spark_session import Spark
    from mirrorlake.spark.settings import SparkSettings
    from mirrorlake.storage.urls import StorageLocation
    from tests.spark.reading import INTERPRETED

    conf = {} if profiles.LONG else INTERPRETED
    settings = SparkSettings(master="local[2]", driver_memory="1g", conf=conf)
    with Spark.start(settings, tables=StorageLocation(s3.new_bucket(), s3.options)) as started:
        yield started
