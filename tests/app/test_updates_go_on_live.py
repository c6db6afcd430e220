"""No update of a user is rejected for the mirror, whenever a table loses its key, and the mirror
ends equal."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mirrorlake.sources.postgresql.settings import TriggerPolicy
from mirrorlake.storage.local import LocalStore
from tests.app.evolving_database import EvolvingDatabase
from tests.conftest import Database

pytestmark = pytest.mark.postgres

TABLES = (
    "create table pears (id int primary key, code int not null, note text)",
    "create unique index pears_code on pears (code)",
    "insert into pears values (1, 10, 'a'), (2, 20, 'b'), (3, 30, 'c')",
    "create table log (id int primary key)",
    "create table parts (id int primary key, note text) partition by range (id)",
    "create table parts1 partition of parts for values from (0) to (100)",
    "insert into parts values (1, 'a'), (2, 'b')",
)
LOST = "alter table pears drop constraint pears_pkey"
MISSED = "update pears set note = 'missed' where id < 3; delete from pears where id = 3"
BACK = "alter table pears add primary key (code)"


@pytest.mark.parametrize(
    "statements",
    [
        [f"begin; {LOST}; {MISSED}; {BACK}; update pears set note = 'kept' where id = 1; commit"],
        pytest.param([LOST, MISSED, BACK], marks=pytest.mark.full),
        pytest.param([f"begin; {LOST}; {BACK}; {MISSED}; commit"], marks=pytest.mark.full),
        pytest.param(
            [
                "alter table pears replica identity using index pears_code",
                f"drop index pears_code; {MISSED}",
                "alter table pears replica identity default",
            ],
            marks=pytest.mark.full,
        ),
        pytest.param(
            [
                "alter table parts1 replica identity nothing; update parts set note = 'missed'",
                "alter table parts1 replica identity default; delete from parts where id = 1",
            ],
            marks=pytest.mark.full,
        ),
    ],
)
@pytest.mark.parametrize("is_down", [True, pytest.param(False, marks=pytest.mark.full)])
def test_an_update_after_the_key_was_dropped_goes_on(
    database: Database, store: LocalStore, statements: Sequence[str], *, is_down: bool
) -> None:
    """is_down: capture runs only before and afterwards."""
    evolving = EvolvingDatabase(database, store, trigger=TriggerPolicy.AUTO)
    evolving.begin(*TABLES)
    for statement in statements:
        evolving.run(statement)
        if not is_down:
            evolving.capture()
    evolving.live(["insert into log values (1)", "insert into pears values (9, 90)"], each=True)
    evolving.check("pears")
    evolving.check("parts")
