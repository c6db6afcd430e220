"""What changes no row of a table is told by `status`, also when it happens between two runs."""

from __future__ import annotations

import pytest

from mirrorlake import root
from mirrorlake.capture.records.records import Records
from tests.app.evolving_database import EvolvingDatabase

pytestmark = pytest.mark.postgres

TABLES = (
    "create type mood as enum ('sad', 'ok')",
    "create domain weight as int check (value > 0)",
    """create table apples (id int primary key, size int default 1, note text, feels mood[],
       heavy weight, twice int generated always as (size * 2) stored)""",
    "insert into apples values (1, 1, 'a', '{sad}', 5)",
    "create table log (id int primary key)",
)
CHANGES = {
    "alter table apples alter size set default 2": "the default of column size was changed",
    "alter table apples alter note set default 'x'": "the default of column note was added",
    "alter table apples alter size drop default": "the default of column size was dropped",
    "alter table apples alter note set not null": "NOT NULL of column note was added",
    "alter table apples add constraint small check (size < 9) not valid": (
        "constraint small was added"
    ),
    "alter table apples validate constraint small": "constraint small was changed",
    "alter table apples rename constraint small to tiny": (
        "constraint small was renamed: constraint tiny"
    ),
    "alter type mood add value 'great'": "value 'great' of enum type mood was added",
    "alter domain weight set default 3": "domain weight was changed",
    "alter domain weight add constraint light check (value < 100)": (
        "constraint light of domain weight was added"
    ),
    'alter table apples alter note type text collate "C"': (
        "the collation of column note was changed"
    ),
    "alter table apples alter twice set expression as (size * 3)": (
        "the expression of generated column twice was changed"
    ),
}


def told(evolving: EvolvingDatabase) -> dict[str, list[str]]:
    found = Records(evolving.store, root.LANDING).without_effect()
    return {name: [seen.change for seen in changes] for name, changes in found.items()}


@pytest.mark.full
def test_what_changes_no_row_is_told(evolving: EvolvingDatabase) -> None:
    evolving.begin(*TABLES)
    evolving.capture()
    assert told(evolving) == {}
    version = evolving.database.sql.info.server_version
    for statement, change in CHANGES.items():
        if "set expression" in statement and version < 170_000:
            continue
        evolving.run(statement)
        evolving.capture()
        # Before PostgreSQL 16 another collation of a column changes its default as well.
        assert change in told(evolving)["public.apples"][-2:]
    assert told(evolving).keys() == {"public.apples"}


@pytest.mark.full
def test_a_column_is_told_by_the_mirror_itself(evolving: EvolvingDatabase) -> None:
    """What comes, goes and is renamed with it is not told again."""
    evolving.begin(*TABLES)
    evolving.run(
        "alter table apples add fresh text not null default 'x'",
        "alter table apples rename size to width",
        "alter table apples drop note, drop twice",
        "insert into apples (id) values (2)",
    )
    evolving.capture()
    evolving.apply()
    assert told(evolving) == {}
    assert evolving.stopped() == {}
