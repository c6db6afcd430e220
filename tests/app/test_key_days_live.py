"""Tables whose keys have days that no Delta type holds stop, and no row is lost in silence."""

from __future__ import annotations

import pytest

from mirrorlake import root
from mirrorlake.app.own_root import of_root
from mirrorlake.app.reset import plan_reset
from mirrorlake.capture.backfill.backfills import BackfillSettings
from mirrorlake.capture.backfill.jobs import BackfillRecords, BackfillRequest
from mirrorlake.capture.backfill.reading import ChunkLimits
from mirrorlake.capture.records.records import Records
from mirrorlake.storage.local import LocalStore
from tests.app.evolving_database import EvolvingDatabase
from tests.conftest import Database
from tests.profiles import some

pytestmark = pytest.mark.postgres

DAYS = "create table days (day date primary key, n int)"
LOG = "create table log (id int primary key)"
MANY = "insert into days values ('0044-03-15 BC', 1), ('0045-01-01 BC', 2), ('2024-02-29', 3)"
WHY = "is outside the years 1 to 9999, and the rows of the table are found by the column"


def check_others(evolving: EvolvingDatabase) -> None:
    """Only the table with the days has stopped."""
    evolving.run("insert into log select count(*) from log")
    evolving.capture()
    evolving.apply()
    assert WHY in evolving.stopped().pop("public.days")
    assert [*evolving.stopped()] == ["public.days"]
    ((count,),) = evolving.database.sql.execute("select count(*) from log").fetchall()
    assert sorted(row["id"] for row in evolving.mirrored("log")) == [*range(count)]


@pytest.mark.parametrize("beside", some([None, 1]))
def test_a_table_that_has_such_keys_is_not_loaded(
    database: Database, store: LocalStore, beside: int | None
) -> None:
    evolving = EvolvingDatabase(database, store, load_beside=beside)
    evolving.begin(LOG, DAYS, MANY, "analyze")
    check_others(evolving)
    evolving.run("update days set day = '2024-01-01'::date + n where n < 3")
    plan_reset(of_root(evolving.store.root), ["public.days"]).execute()
    evolving.live([], each=False)
    evolving.check("days")


@pytest.mark.parametrize("each", [True, False])
def test_a_table_that_gets_such_a_key_stops_before_it(
    evolving: EvolvingDatabase, each: bool
) -> None:
    evolving.begin(LOG, DAYS)
    statements = ["insert into days values ('2024-02-29', 1), ('9999-12-31', 2)", "select 1"]
    evolving.live([*statements, "insert into days values ('10000-01-01', 3)"], each=each)
    check_others(evolving)
    there = {row["n"] for row in evolving.mirrored("days")}
    # The rows before it are landed if the server has sent them by themselves.
    assert there == {1, 2} or (not each and not there)


def test_a_table_lives_with_an_infinity_in_its_key(evolving: EvolvingDatabase) -> None:
    evolving.begin(DAYS, "insert into days values ('infinity', 1), ('2024-02-29', 2)")
    evolving.live(["update days set n = 5 where day = 'infinity'"], each=True)
    last = {row["day"].isoformat(): row["n"] for row in evolving.mirrored("days")}
    assert last == {"9999-12-31": 5, "2024-02-29": 2}
    evolving.live(["delete from days where day = 'infinity'"], each=True)
    evolving.check("days")


KEYS = ["day, n", "n, day"]
END = "insert into days select {}, g, 'a' from generate_series({}, {}) g"
BOTH = (
    END.format("'-infinity'", 1, 9),
    END.format("date '2024-02-29' + g", 10, 14),
    END.format("'infinity'", 15, 20),
)


@pytest.mark.parametrize("key", some(KEYS))
def test_a_table_with_infinities_in_its_key_is_read_again(
    database: Database, store: LocalStore, key: str
) -> None:
    settings = BackfillSettings(ChunkLimits(4, seconds=0.0), look_seconds=0.0, retry_seconds=0.05)
    evolving = EvolvingDatabase(database, store, backfill=settings)
    create = f"create table days (day date, n int, note text, primary key ({key}))"
    evolving.begin(LOG, create, *BOTH)
    evolving.run("alter table days alter note type varchar(50) using note || '!'")
    evolving.capture()
    evolving.apply()
    evolving.check("days", columns="n, note")
    assert evolving.jobs()


RANGES = [
    pytest.param(keys) for keys in (("0001-01-01", "2024-02-29"), ("2024-03-12", "9999-12-31"))
]


@pytest.mark.parametrize("keys", some(RANGES))
def test_infinities_are_in_a_range_that_ends_where_they_are_in_the_mirror(
    database: Database, store: LocalStore, keys: tuple[str, str]
) -> None:
    evolving = EvolvingDatabase(database, store)
    evolving.begin(LOG, "create table days (day date primary key, n int)")
    evolving.run("insert into days values ('-infinity', 1), ('2024-02-29', 2), ('infinity', 3)")
    jobs = BackfillRecords(Records(store, root.LANDING))
    jobs.request(BackfillRequest("job", "public.days", keys, None, "job"))
    evolving.capture()
    evolving.apply()
    assert len(evolving.jobs()) == 1
    evolving.check("days", columns="n")


PART = "create table days_{} partition of days for values from ({}) to ({})"


@pytest.mark.parametrize("emptied", some([0, 1, 2]))
def test_a_partition_of_an_infinity_is_read_again(evolving: EvolvingDatabase, emptied: int) -> None:
    bounds = ["minvalue", "'0001-01-01'", "'2024-01-01'", "maxvalue"]
    evolving.begin(
        LOG,
        "create table days (day date, n int, primary key (day, n)) partition by range (day)",
        *(PART.format(n, bounds[n], bounds[n + 1]) for n in range(3)),
        "insert into days select d, g from unnest(array['-infinity', '2023-01-01', "
        "'infinity']::date[]) d, generate_series(1, 5) g",
    )
    evolving.live([f"truncate days_{emptied}", "insert into log values (1)"], each=True)
    evolving.check("days", columns="n")
    assert evolving.jobs()
