"""Tables that are altered while they are loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import pytest

from mirrorlake import root
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.watch import joining
from mirrorlake.errors import AlteredWhileLoaded
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.storage.local import LocalStore
from tests.app.evolving_database import Dying, EvolvingDatabase
from tests.conformance.scene import until
from tests.conftest import Database
from tests.profiles import some

pytestmark = pytest.mark.postgres

BEFORE = (
    "insert into apples values (-1, 'before')",
    "update apples set note = 'seen' where id = 2",
)
ALTERED = {
    "added": "alter table apples add column price int default 7",
    "dropped": "alter table apples drop column note",
    "renamed": "alter table apples rename note to text",
    "exchanged": "alter table apples drop column note; alter table apples add column note text",
    "another key": "alter table apples drop constraint apples_pkey, add column no int not null "
    "generated always as identity, add primary key (no)",
    "retyped": "alter table apples alter note type int using length(note)",
}
AFTER = ("insert into apples (id) values (-2)", "update apples set id = -4 where id = 4")
POINTS = [
    CrashPoint.SLOT_CREATED,
    CrashPoint.ESTABLISHED,
    CrashPoint.LOAD_NOTED,
    CrashPoint.LOAD_STAGED,
    CrashPoint.LOAD_MANIFEST,
    CrashPoint.LOAD_PUBLISHED_ONE,
    CrashPoint.LOAD_PUBLISHED,
]


@dataclass
class Meanwhile:
    """Somebody alters the table when capture is at a point, once."""

    evolving: EvolvingDatabase
    at: CrashPoint
    statements: Sequence[str]
    is_done: bool = False

    def __call__(self, point: CrashPoint) -> None:
        if point is self.at and not self.is_done:
            self.is_done = True
            self.evolving.run(*self.statements)


def apples(database: Database, store: LocalStore) -> EvolvingDatabase:
    evolving = EvolvingDatabase(database, store, part_bytes=4 * 8192)
    evolving.run(
        "create table apples (id int primary key, note text)",
        "insert into apples select g, repeat('x', 400) from generate_series(1, 300) g",
        "create table log (id int primary key)",
    )
    return evolving


@pytest.mark.parametrize(("point", "alter"), some(list(product(POINTS, ALTERED)), 2))
def test_a_table_that_is_altered_after_its_load_died_is_loaded(
    database: Database, store: LocalStore, point: CrashPoint, alter: str
) -> None:
    """The stream describes it as it was, for changes that the later load has."""
    evolving = apples(database, store)
    assert evolving.capture(Dying(point))
    evolving.run(*BEFORE, ALTERED[alter], *AFTER)
    evolving.capture()
    evolving.apply()
    evolving.check("apples")


@pytest.mark.full
@pytest.mark.parametrize("before", [BEFORE, ()])
@pytest.mark.parametrize("alter", list(ALTERED))
@pytest.mark.parametrize("point", POINTS)
def test_a_table_that_is_altered_while_it_is_loaded_is_loaded(
    database: Database,
    store: LocalStore,
    point: CrashPoint,
    alter: str,
    before: Sequence[str],
) -> None:
    evolving = apples(database, store)
    meanwhile = Meanwhile(evolving, point, (*before, ALTERED[alter], *AFTER))
    evolving.capture(meanwhile)
    assert meanwhile.is_done
    evolving.apply()
    evolving.check("apples")
    evolving.run("update apples set id = -3 where id = 3")
    evolving.capture()
    evolving.apply()
    evolving.check("apples")


@dataclass
class Always:
    """Somebody alters the table whenever its load has begun, until it is told to end."""

    evolving: EvolvingDatabase
    count: int = 0
    has_ended: bool = False

    def __call__(self, point: CrashPoint) -> None:
        if point in {CrashPoint.ESTABLISHED, CrashPoint.LOAD_STAGED} and not self.has_ended:
            former = f"note{self.count or ''}"
            self.count += 1
            self.evolving.run(f"alter table apples rename {former} to note{self.count}")


def is_landed(evolving: EvolvingDatabase, table: str) -> bool:
    folder = evolving.store.list(f"{root.LANDING}/public.schema/{table}")
    return any(file.name.startswith("0") for file in folder.files)


@pytest.mark.full
def test_a_table_that_is_altered_all_the_time_ends_a_run_after_the_others(
    database: Database, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "MOST_ATTEMPTS", 3)
    evolving = apples(database, store)
    evolving.part_bytes = 8192
    with pytest.raises(AlteredWhileLoaded):
        evolving.capture(Always(evolving))
    evolving.run("insert into log values (1)")
    assert is_landed(evolving, "log")
    assert not is_landed(evolving, "apples")
    assert not Records(store, root.LANDING).stopped()
    evolving.capture()
    evolving.apply()
    evolving.check("apples")
    evolving.check("log")


@pytest.mark.full
def test_others_go_on_while_a_table_is_altered_all_the_time(
    database: Database, store: LocalStore
) -> None:
    evolving = apples(database, store)
    evolving.part_bytes = 8192
    always = Always(evolving)
    with evolving.running(dying=always):
        until(lambda: is_landed(evolving, "log"))
        evolving.run("insert into log values (1)")
        until(lambda: evolving.apply() or evolving.mirrored("log"))
        until(lambda: always.count > 2)
        assert not is_landed(evolving, "apples")
        always.has_ended = True
        until(lambda: is_landed(evolving, "apples"))
    evolving.capture()
    evolving.apply()
    evolving.check("apples")
    evolving.check("log")
