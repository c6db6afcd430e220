"""Loads of large tables of a live server during which something happens."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from structlog.testing import capture_logs

from mirrorlake.capture.capture import TABLE_LOADED
from mirrorlake.capture.landing.load import LOAD_BEGUN_ANEW
from mirrorlake.errors import SourceUnavailable
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.storage.local import LocalStore
from tests.app.evolving_database import EvolvingDatabase
from tests.conftest import Database
from tests.profiles import some

pytestmark = pytest.mark.postgres

PAGE = 8192
APPLES = (
    "create table apples (id int primary key, note text, other text)",
    "insert into apples select g, repeat('x', 400), 'o' || g from generate_series(1, 400) g",
    "delete from apples where id % 3 = 0 and id < 300",
)


@pytest.fixture
def evolving(database: Database, store: LocalStore) -> EvolvingDatabase:
    return EvolvingDatabase(database, store, part_bytes=4 * PAGE)


@dataclass
class Meanwhile:
    """Runs statements once, when a part of a table has been staged for the given time."""

    evolving: EvolvingDatabase
    statements: tuple[str, ...]
    passages: int = 1
    at: CrashPoint = CrashPoint.LOAD_STAGED
    done: bool = field(default=False, init=False)

    def __call__(self, point: CrashPoint) -> None:
        self.passages -= point is self.at
        if not self.passages and not self.done:
            self.done = True
            self.evolving.run(*self.statements)


REWRITES = {
    "vacuum full": ("vacuum full apples",),
    "cluster": ("cluster apples using apples_pkey",),
    "truncate": ("truncate apples", "insert into apples values (1, 'new', 'new')"),
}


@pytest.mark.parametrize("rewrite", some(list(REWRITES)))
def test_a_table_that_is_rewritten_between_two_parts_is_read_anew(
    evolving: EvolvingDatabase, rewrite: str
) -> None:
    evolving.run(*APPLES)
    meanwhile = Meanwhile(evolving, REWRITES[rewrite], passages=3)
    with capture_logs() as logs:
        evolving.capture(meanwhile)
    evolving.apply()
    evolving.check("apples")
    assert meanwhile.done
    (anew,) = [entry for entry in logs if entry["event"] == LOAD_BEGUN_ANEW]
    assert "rewritten" in anew["reason"]


def test_a_table_whose_columns_exchange_their_names_between_two_parts_is_read_in_a_new_snapshot(
    evolving: EvolvingDatabase,
) -> None:
    evolving.run(*APPLES)
    exchange = (
        "begin; alter table apples rename note to was; alter table apples rename other to note; "
        "alter table apples rename was to other; commit"
    )
    with pytest.raises(SourceUnavailable, match="renamed"):
        evolving.capture(Meanwhile(evolving, (exchange,), passages=3))
    with capture_logs() as logs:
        evolving.capture()
    evolving.apply()
    evolving.check("apples")
    assert [entry["event"] for entry in logs].count(TABLE_LOADED) == 1
