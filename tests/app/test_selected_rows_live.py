"""Rows that the project selects from a change of their key on, with large values that stay."""

from __future__ import annotations

import pytest

from mirrorlake.storage.local import LocalStore
from tests.app.evolving_database import EvolvingDatabase
from tests.conftest import Database

pytestmark = [pytest.mark.postgres, pytest.mark.full]

SELECTED = {"public.apples": "place > 5"}
STATEMENTS = (
    "update apples set place = place + 100 where id < 3",
    "update apples set place = -id where id in (7, 8)",
    "update apples set place = 200 where id = 4; update apples set note = 'y' where id = 4",
    "update apples set place = 201 where id = 4; update apples set note = 'z' where id = 4",
    "update apples set place = 300 where id = 5; update apples set place = 0 where id = 5",
    "update apples set place = 400 where id = 3; delete from apples where id = 3",
    "update apples set place = 500, large = repeat('z', 9999) where id = 7",
    "update apples set place = 501 where id = 7",
)


@pytest.mark.parametrize("each", [True, False])
@pytest.mark.parametrize("key", ["id, place", "place"])
def test_a_row_that_is_selected_from_a_change_on_comes_whole(
    database: Database, store: LocalStore, key: str, *, each: bool
) -> None:
    """PostgreSQL sends an insert, without what did not change and is stored elsewhere."""
    evolving = EvolvingDatabase(database, store, selected_rows=SELECTED)
    evolving.begin(
        f"create table apples (id int, place int, note text, large text, primary key ({key}))",
        "alter table apples alter large set storage external",
        "insert into apples select n, n, '', repeat(md5(n::text), 99) from generate_series(1, 9) n",
    )
    evolving.live(STATEMENTS, each=each)
    evolving.check("apples", source="(select * from apples where place > 5) a")
    assert evolving.read_again() == []
