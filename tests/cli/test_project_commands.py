"""Commands around a project, on a real PostgreSQL and without a JVM."""

from __future__ import annotations

import sys
from pathlib import Path
from shutil import rmtree

import pytest

from mirrorlake.model.clock import WallClock
from mirrorlake.model.landed import readable_time
from mirrorlake.storage.lease import Lease
from mirrorlake.storage.local import LocalStore
from tests.cli.conftest import Run
from tests.conftest import Database

pytestmark = pytest.mark.postgres


def test_init_writes_a_file_that_check_reads(
    run: Run, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_URL", database.url)
    assert run("init", "${SHOP_URL}", "--name", "shop").code == 0
    database.execute("create table orders (id bigint primary key)")
    assert run("check").code == 0


def test_init_does_not_overwrite(run: Run) -> None:
    run("init")
    assert run("init").code == 2


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:secret@host/db",
        "postgresql://me:secret@host/${DATABASE}",
        "postgresql://host/db?password=secret",
        "postgresql://me@host/db?sslpassword=secret",
        "host=h password=secret",
        "postgresql://u:secret/w@h",
        "postgresql://u:secret@w@h/db",
        "u:secret@h/db",
        "secret",
        "mysql://u:secret@h/db",
    ],
)
@pytest.mark.parametrize("has_psycopg", [True, False])
def test_init_refuses_what_holds_a_password_or_may_hold_one(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, has_psycopg: bool
) -> None:
    if not has_psycopg:
        monkeypatch.setitem(sys.modules, "psycopg", None)
    done = run("init", url)
    assert done.code == 2
    assert "secret" not in done.error
    assert not (tmp_path / "mirrorlake.yaml").exists()


@pytest.mark.parametrize(
    "url",
    [
        "${SHOP_URL}",
        "postgresql://postgres@localhost/shop",
        "postgresql://localhost:5433",
        "postgres://${USER}@db.example.org:5432/shop",
    ],
)
@pytest.mark.parametrize("has_psycopg", [True, False])
def test_init_takes_what_holds_none(
    run: Run, monkeypatch: pytest.MonkeyPatch, url: str, has_psycopg: bool
) -> None:
    if not has_psycopg:
        monkeypatch.setitem(sys.modules, "psycopg", None)
    assert run("init", url).code == 0


def test_check_names_each_prerequisite_and_its_remedy(run: Run, shop: Database) -> None:
    done = run("check", "--json")
    assert done.code == 0
    findings = {(f["check"], f["table"]): f for f in done.facts()["findings"]}
    assert findings["wal_level", None]["severity"] == "ok"
    keyless = findings["replica identity", "public.log"]
    assert keyless["severity"] == "warning"
    assert "add primary key" in keyless["remedy"]


def test_check_names_settings_of_a_table_that_is_none(
    run: Run, shop: Database, tmp_path: Path
) -> None:
    off = "{change_feed: false}"
    with (tmp_path / "mirrorlake.yaml").open("a") as file:
        file.write(f"mirror: {{tables: {{public.orders: {off}, public.ordres: {off}}}}}\n")
    done = run("check")
    assert done.code == 0
    assert (
        "warning  settings: public.ordres in mirror.tables is no table of this mirror" in done.out
    )
    assert "public.orders in mirror.tables" not in done.out


def test_check_prints_no_control_characters_of_names(run: Run, shop: Database) -> None:
    shop.execute(
        'create table "a\nok all is well" (id int primary key)',
        'create table "\x1b[2J" (line text)',
    )
    done = run("check")
    assert "ok       'public.a\\nok all is well': replica identity: key id" in done.out
    assert "warning  'public.\\x1b[2J': replica identity" in done.out
    assert "\x1b" not in done.out + done.error
    assert "\nok all" not in done.out


def test_check_prints_its_remedies_as_a_script_that_runs(run: Run, shop: Database) -> None:
    shop.execute(
        'create table "odd""name" (id bigint primary key)',
        """alter table "odd""name" replica identity nothing""",
        """create unlogged table "a`b;" (id bigint primary key)""",
        "create unlogged table swift (id bigint primary key)",
    )
    done = run("check", "--sql")
    script = done.out
    assert 'alter table "public"."odd""name" replica identity default;\n' in script
    assert 'alter table "public"."swift" set logged;\n' in script
    assert "-- error: public.swift: logged: the table is unlogged" in script
    assert "add primary key (...)" in script  # says what to do, and is not a statement yet
    statements = [line for line in script.splitlines() if line and not line.startswith("--")]
    assert not any("..." in line or "a`b" in line for line in statements)
    shop.execute(script)
    assert "odd" not in run("check", "--sql").out
    assert run("check", "--sql", "--json").code == 2


def test_check_of_a_server_that_is_not_there_ends_with_code_three(
    run: Run, shop: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE", "postgresql://nobody:hush@127.0.0.1:1/none")
    done = run("check")
    assert done.code == 3
    assert "hush" not in done.out + done.error


@pytest.mark.parametrize("command", ["check", "discover", "run --once", "capture --once"])
def test_a_mistake_in_the_url_is_no_outage(
    run: Run, shop: Database, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("SOURCE", "postgresql://nobody:hush@127.0.0.1:1/none?sslmode=zzz")
    done = run(*command.split())
    assert done.code == 2
    assert "the sslmode in the URL of the source is not valid" in done.out + done.error
    assert "hush" not in done.out + done.error


def test_discover_shows_keys_and_types(run: Run, shop: Database) -> None:
    tables = {t["table"]: t for t in run("discover", "--json").facts()["tables"]}
    assert tables["public.orders"]["key"] == ["id"]
    assert tables["public.orders"]["columns"][0] == {
        "name": "id",
        "type": "long",
        "source_type": "int8",
    }
    assert tables["public.log"]["append_only"]


def test_capture_lands_and_plan_says_what_apply_would_do(run: Run, shop: Database) -> None:
    assert run("capture", "--once").code == 0
    steps = run("plan", "--json").facts()["tables"]
    orders = next(t for t in steps if t["table"] == "public.orders")
    assert [step["step"] for step in orders["steps"]] == ["create", "apply"]
    assert orders["steps"][1]["rows"] == 10
    assert orders["steps"][1]["strategy"] == "direct"
    assert orders["steps"][1]["reason"] == "no feature of this table requires Delta's MERGE"


def test_plan_changes_nothing(run: Run, shop: Database, tmp_path: Path) -> None:
    run("capture", "--once")
    before = sorted(tmp_path.rglob("*"))
    run("plan")
    assert sorted(tmp_path.rglob("*")) == before


def test_status_before_the_first_apply_says_snapshotting(run: Run, shop: Database) -> None:
    run("capture", "--once")
    found = run("status", "--json").facts()
    assert found["state"] == "Stopped"
    states = {t["table"]: t["state"] for t in found["tables"]}
    assert states == {"public.orders": "Snapshotting", "public.log": "Snapshotting"}


def test_a_foreign_slot_of_the_same_name_is_not_touched(run: Run, shop: Database) -> None:
    slot = f"mirrorlake_{shop.name}"
    shop.sql.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [slot])
    before = _slot(shop, slot)
    assert run("capture", "--once").code == 1
    assert _slot(shop, slot) == before


@pytest.mark.full
@pytest.mark.parametrize(
    "work",
    [
        ("capture", "--once"),
        ("run", "--once"),
        ("run",),
        ("apply", "--once"),
        ("apply",),
        ("plan",),
    ],
)
def test_a_new_root_is_refused_while_the_slot_belongs_to_another(
    run: Run, shop: Database, tmp_path: Path, work: tuple[str, ...]
) -> None:
    run("capture", "--once")
    file = tmp_path / "mirrorlake.yaml"
    file.write_text(file.read_text().replace("./root", "./other"))
    done = run(*work)
    assert done.code == 1
    assert f"belongs to the landing zone {tmp_path}/root/Files/LandingZone" in done.error
    assert "Set root to the folder of that landing zone" in done.error
    assert "pg_drop_replication_slot" not in done.error
    found = {f["check"]: f for f in run("check", "--json").facts()["findings"]}
    assert found["slot"]["severity"] == "error"
    assert f"belongs to the landing zone {tmp_path}/root" in found["slot"]["message"]
    assert not (tmp_path / "other").exists()


def test_a_root_that_was_deleted_is_not_begun_anew_by_itself(
    run: Run, shop: Database, tmp_path: Path
) -> None:
    run("capture", "--once")
    rmtree(tmp_path / "root")
    done = run("capture", "--once")
    assert done.code == 1
    assert "was made for this landing zone, in which nothing is known of it" in done.error
    assert "Restore the folder from a backup" in done.error
    statement = f"select pg_drop_replication_slot('mirrorlake_{shop.name}')"
    assert statement in done.error
    shop.sql.execute(statement)
    assert run("capture", "--once").code == 0


def test_detach_refuses_while_capture_runs(run: Run, shop: Database, tmp_path: Path) -> None:
    run("capture", "--once")
    lease = Lease(LocalStore(tmp_path / "root"), "capture", WallClock())
    lease.take()
    done = run("detach", "--yes")
    assert done.code == 1
    assert "`mirrorlake run` or `mirrorlake capture` is already active here" in done.error
    assert _slots(shop) == 1
    lease.release()
    assert run("detach", "--yes").code == 0
    assert run("capture", "--once").code == 1  # it has ended, and says that it is detached
    assert _slots(shop) == 0


def test_detach_asks_and_then_drops_what_was_made(run: Run, shop: Database) -> None:
    run("capture", "--once")
    assert run("detach", answer="n\n").code != 0
    assert _slots(shop) == 1
    assert run("detach", answer="y\n").code == 0
    assert _slots(shop) == 0


def test_detach_drops_the_publications_of_a_slot_that_was_dropped_by_hand(
    run: Run, shop: Database, tmp_path: Path
) -> None:
    run("capture", "--once")
    rmtree(tmp_path / "root")
    assert "nothing in the source that is known here" in run("detach", "--yes").error
    assert len(_publications(shop)) == 2  # a folder that is restored goes on with the slot
    slot = f"mirrorlake_{shop.name}"
    shop.execute(f"select pg_drop_replication_slot('{slot}')")
    done = run("detach", "--yes")
    assert done.code == 0
    assert f"Dropped publication {slot}.\nDropped publication {slot}_append." in done.error
    assert _publications(shop) == []


def test_detach_keeps_a_publication_that_others_made_in_place_of_ours(
    run: Run, shop: Database
) -> None:
    run("capture", "--once")
    name = f"mirrorlake_{shop.name}"
    shop.execute(f"drop publication {name}", f"create publication {name} for table orders")
    done = run("detach", "--yes")
    assert f"Not dropped: publication {name}, which is gone, or is not the one" in done.error
    assert _publications(shop) == [name]


@pytest.mark.full
@pytest.mark.parametrize("work", [("capture", "--once"), ("run", "--once"), ("run",)])
def test_a_detached_mirror_says_so_wherever_it_is_asked(
    run: Run, shop: Database, tmp_path: Path, work: tuple[str, ...]
) -> None:
    run("capture", "--once")
    assert run("status", "--json").facts()["detached"] is None
    run("detach", "--yes")
    time = readable_time(run("status", "--json").facts()["detached"])
    told = run("status").out
    assert f"detached from the source at {time}" in told
    assert "mirrorlake repair" in told
    assert "mirrorlake reset --all" in told
    found = {f["check"]: f for f in run("check", "--json").facts()["findings"]}
    assert time in found["detached"]["message"]
    before = sorted(tmp_path.rglob("*"))
    done = run(*work)
    assert done.code == 1
    assert f"detached at {time}" in done.error
    assert sorted(tmp_path.rglob("*")) == before
    run("reset", "--all", "--yes")
    assert run("status", "--json").facts()["detached"] is None
    assert run("capture", "--once").code == 0
    assert run("check").code == 0


def test_a_table_that_was_reset_stays_in_status(run: Run, shop: Database) -> None:
    run("capture", "--once")
    said = run("reset", "public.orders", "--yes").error
    assert "its change feed is deleted too" in said
    tables = {t["table"]: t for t in run("status", "--json").facts()["tables"]}
    assert tables["public.orders"]["state"] == "Initialized"
    assert tables["public.orders"]["waiting"] == "it was reset; the next run loads it"
    run("capture", "--once")
    tables = {t["table"]: t for t in run("status", "--json").facts()["tables"]}
    assert tables["public.orders"]["state"] == "Snapshotting"


def test_after_detach_capture_reports_the_gap(run: Run, shop: Database) -> None:
    run("capture", "--once")
    run("detach", "--yes")
    done = run("capture", "--once")
    assert done.code == 1
    assert "reset --all" in done.error


def test_reset_all_loads_everything_anew_after_a_gap(run: Run, shop: Database) -> None:
    run("capture", "--once")
    run("detach", "--yes")
    shop.execute("insert into orders values (11, 'while nobody looked')")
    assert run("reset", "--all", "--yes").code == 0
    assert run("capture", "--once").code == 0
    steps = run("plan", "--json").facts()["tables"]
    orders = next(t for t in steps if t["table"] == "public.orders")
    assert orders["steps"][-1]["rows"] == 11


@pytest.mark.full
@pytest.mark.clause("ST-277")
def test_a_lost_slot_is_failed_permanently_until_it_is_repaired(run: Run, shop: Database) -> None:
    run("capture", "--once")
    shop.execute(
        f"select pg_drop_replication_slot('mirrorlake_{shop.name}')",
        "insert into orders values (11, 'while nobody looked')",
        "delete from orders where id = 1",
    )
    assert "MiB of the log" in run("capture", "--once").error
    facts = run("status", "--json").facts()
    assert facts["state"] == "Failed permanently"
    assert "MiB of the log" in facts["errors"][0]["message"]
    planned = run("repair", "--dry-run", "--json")
    assert planned.facts()["compared"] == ["public.log", "public.orders"]
    assert "public.orders: compare it with the source" in planned.error
    assert run("repair", answer="n\n").code == 1
    assert run("capture", "--once").code == 1
    assert run("repair", "--yes").code == 0
    assert run("capture", "--once").code == 0
    facts = run("status", "--json").facts()
    assert (facts["state"], facts["errors"]) == ("Stopped", [])
    assert [job["state"] for job in facts["backfills"]] == ["COMPLETED", "COMPLETED"]
    assert "nothing to repair" in run("repair").error


def test_a_detached_mirror_is_repaired(run: Run, shop: Database) -> None:
    run("capture", "--once")
    run("detach", "--yes")
    assert run("repair", "--yes").code == 0
    assert run("status", "--json").facts()["detached"] is None
    assert run("capture", "--once").code == 0


def test_reset_says_what_it_would_do(run: Run, shop: Database, tmp_path: Path) -> None:
    run("capture", "--once")
    before = sorted(tmp_path.rglob("*.parquet"))
    done = run("reset", "public.orders", "--dry-run")
    assert "public.orders" in done.error
    assert sorted(tmp_path.rglob("*.parquet")) == before


def test_reset_refuses_while_capture_runs(run: Run, shop: Database, tmp_path: Path) -> None:
    run("capture", "--once")
    lease = Lease(LocalStore(tmp_path / "root"), "capture", WallClock())
    lease.take()
    assert run("reset", "public.orders", "--yes").code == 1


def _publications(database: Database) -> list[str]:
    return [row[0] for row in database.sql.execute("select pubname from pg_publication order by 1")]


def _slots(database: Database) -> int:
    row = database.sql.execute(
        "select count(*) from pg_replication_slots where database = %s", [database.name]
    ).fetchone()
    assert row is not None
    return int(row[0])


def _slot(database: Database, name: str) -> object:
    return database.sql.execute(
        "select restart_lsn, confirmed_flush_lsn from pg_replication_slots where slot_name = %s",
        [name],
    ).fetchone()
