"""Tables that cannot be captured stop alone, and begin anew when they can be."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.capture.records.stream import StreamRecord
from mirrorlake.model.clock import WallClock
from mirrorlake.storage.lease import Lease
from mirrorlake.storage.local import LocalStore
from tests.cli.conftest import Run
from tests.conftest import Database

pytestmark = pytest.mark.postgres


def tables(run: Run) -> dict[str, dict[str, Any]]:
    return {t["table"]: t for t in run("status", "--json").facts()["tables"]}


def pending_rows(run: Run, table: str) -> int:
    plans = {t["table"]: t for t in run("plan", "--json").facts()["tables"]}
    return int(plans[table]["steps"][-1]["rows"])


class TestARefusedColumn:
    """A column that no Delta table can hold under its name."""

    @pytest.fixture(autouse=True)
    def odd(self, shop: Database) -> None:
        shop.execute(
            'create table odd (id int primary key, "__x" int)', "insert into odd values (1, 2)"
        )

    def test_it_stops_its_table_alone(self, run: Run) -> None:
        done = run("capture", "--once")
        assert done.code == 1
        assert "public.odd: " in done.error
        found = tables(run)
        assert found["public.odd"]["state"] == "Failed"
        assert found["public.odd"]["error"]["code"] == "unsupported_column"
        assert found["public.odd"]["error"]["column"] == "__x"
        assert pending_rows(run, "public.orders") == 10

    def test_it_is_shown_by_discover(self, run: Run) -> None:
        found = {t["table"]: t["refused"] for t in run("discover", "--json").facts()["tables"]}
        assert found["public.odd"] == "column __x has a reserved name"
        assert found["public.orders"] is None

    def test_left_out_it_lets_the_table_begin(self, run: Run, tmp_path: Path) -> None:
        run("capture", "--once")
        file = tmp_path / "mirrorlake.yaml"
        columns = '"public.*"], columns: {public.odd: ["*", "!__x"]}}'
        file.write_text(file.read_text().replace('"public.*"]}', columns))
        assert run("capture", "--once").code == 0
        assert tables(run)["public.odd"]["error"] is None
        assert pending_rows(run, "public.odd") == 1


def test_an_unlogged_table_stops_alone_and_is_shown(run: Run, shop: Database) -> None:
    shop.execute("create unlogged table swift (id int primary key)")
    done = run("capture", "--once")
    assert done.code == 1
    assert "public.swift: " in done.error
    error = tables(run)["public.swift"]["error"]
    assert error["code"] == "not_logged"
    assert 'alter table "public"."swift" set logged' in error["hint"]
    assert pending_rows(run, "public.orders") == 10
    found = {t["table"]: t["refused"] for t in run("discover", "--json").facts()["tables"]}
    assert found["public.swift"] == "the table is unlogged: its changes are not in the WAL"


class TestATableThatWasReplacedWhileNobodyLooked:
    """Dropped and created again between two runs: what is landed is another table's."""

    @pytest.fixture(autouse=True)
    def replaced(self, run: Run, shop: Database, tmp_path: Path) -> None:
        run("capture", "--once")
        shop.execute(
            "drop table orders",
            "create table orders (id bigint primary key, status text)",
            "insert into orders values (1, 'of the new one')",
        )
        self.file = tmp_path / "mirrorlake.yaml"

    def test_it_is_loaded_by_itself(self, run: Run) -> None:
        assert run("capture", "--once").code == 0
        assert tables(run)["public.orders"]["error"] is None
        assert pending_rows(run, "public.orders") == 1

    @pytest.mark.full
    def test_it_stops_alone_where_the_project_wants_it(self, run: Run, shop: Database) -> None:
        self.stop()
        shop.execute("insert into log values ('goes on')")
        assert run("capture", "--once").code == 1
        found = tables(run)
        assert found["public.orders"]["error"]["code"] == "table_recreated"
        assert found["public.log"]["error"] is None
        assert found["public.log"]["pending_files"] > 1

    @pytest.mark.full
    def test_reset_loads_the_new_one(self, run: Run) -> None:
        self.stop()
        run("capture", "--once")
        assert run("reset", "public.orders", "--yes").code == 0
        assert run("capture", "--once").code == 0
        assert tables(run)["public.orders"]["error"] is None
        assert pending_rows(run, "public.orders") == 1

    def stop(self) -> None:
        said = "\nmirror: {schema_change: {table_recreated: stop}}\n"
        self.file.write_text(self.file.read_text() + said)


@pytest.mark.full
def test_a_table_that_cannot_join_stops_alone_and_begins_after_its_remedy(
    run: Run, shop: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new table of somebody else: only its owner could add it to the publication."""
    run("capture", "--once")
    assert run("reset", "public.log", "--yes").code == 0
    user = f"visitor_{shop.name}"
    shop.execute(
        f"create role {user} login replication password '{user}'",
        f"grant create on database {shop.name} to {user}",
        f"alter publication mirrorlake_{shop.name} owner to {user}",
        "create table later (id int primary key)",
        "insert into orders values (11, 'goes on')",
        f"grant select on all tables in schema public to {user}",
    )
    monkeypatch.setenv("SOURCE", shop.url_as(user))
    assert run("capture", "--once").code == 1
    found = tables(run)
    assert found["public.later"]["error"]["code"] == "unsupported_table"
    assert found["public.orders"]["error"] is None
    assert found["public.orders"]["pending_files"] > 1
    assert found["public.log"]["error"] is None
    assert found["public.log"]["pending_files"] == 1

    remedy = re.search("`(alter publication [^`]*)`", run("status").out.replace("\n", " "))
    assert remedy is not None
    shop.execute(remedy[1])
    assert run("capture", "--once").code == 0
    assert tables(run)["public.later"]["error"] is None
    assert tables(run)["public.later"]["pending_files"] == 1


def test_a_dropped_table_is_no_error_where_the_project_ignores_that(
    run: Run, shop: Database, tmp_path: Path
) -> None:
    file = tmp_path / "mirrorlake.yaml"
    file.write_text(f"{file.read_text()}\nmirror: {{schema_change: {{table_dropped: ignore}}}}\n")
    run("capture", "--once")
    shop.execute("drop table orders")
    assert run("capture", "--once").code == 0
    found = run("status")
    assert found.code == 0
    said = " ".join(found.out.split())
    assert "public.orders: the table was dropped in the source, and stays as it was" in said
    assert ", dropped" in said
    assert tables(run)["public.orders"]["error"] is None
    assert tables(run)["public.orders"]["dropped"]
    assert tables(run)["public.log"]["dropped"] is None


@pytest.mark.full
def test_a_dropped_table_is_no_error_and_goes(run: Run, shop: Database, tmp_path: Path) -> None:
    run("capture", "--once")
    shop.execute("drop table orders")
    assert run("capture", "--once").code == 0
    found = run("status")
    assert found.code == 0
    said = " ".join(found.out.split())
    assert "public.orders: the table was dropped in the source; what is landed of it will" in said
    assert run("check").code == 0
    file = tmp_path / "mirrorlake.yaml"
    file.write_text(f"{file.read_text()}\nmirror: {{drop_after_seconds: 0}}\n")
    assert run("capture", "--once").code == 0
    assert "public.orders" not in tables(run)
    shop.execute("create table orders (id int primary key)", "insert into orders values (1)")
    assert run("capture", "--once").code == 0
    assert pending_rows(run, "public.orders") == 1


class TestATableThatIsNotSelectedForAWhile:
    """Nobody lands what happens to it meanwhile, so it may not simply go on."""

    @pytest.fixture(autouse=True)
    def left_out(self, run: Run, shop: Database, tmp_path: Path) -> None:
        run("capture", "--once")
        self.select(tmp_path, '["public.*", "!public.orders"]')
        shop.execute("insert into orders values (11, 'unseen')")
        assert run("capture", "--once").code == 0

    def select(self, folder: Path, tables: str) -> None:
        file = folder / "mirrorlake.yaml"
        file.write_text(re.sub(r"tables: \[.*?\]", f"tables: {tables}", file.read_text()))

    def test_it_is_said(self, run: Run) -> None:
        assert tables(run)["public.orders"]["error"]["code"] == "not_selected"

    def test_selected_again_it_waits_for_its_reset(
        self, run: Run, shop: Database, tmp_path: Path
    ) -> None:
        self.select(tmp_path, '["public.*"]')
        run("capture", "--once")
        assert tables(run)["public.orders"]["error"]["code"] == "selection_changed"
        run("reset", "public.orders", "--yes")
        run("capture", "--once")
        assert tables(run)["public.orders"]["error"] is None
        assert pending_rows(run, "public.orders") == 11


class TestAPublicationThatIsNotWhatItWas:
    """Changes that nobody published are lost: the mirror says so, by every command."""

    @pytest.fixture(autouse=True)
    def begun(self, run: Run, shop: Database) -> str:
        run("capture", "--once")
        return f"mirrorlake_{shop.name}"

    def test_a_table_that_was_taken_out_of_one_that_others_made_differs_until_it_is_back(
        self, run: Run, shop: Database, begun: str
    ) -> None:
        shop.execute(f"comment on publication {begun} is 'of others'")
        shop.execute(f"alter publication {begun} drop table orders")
        shop.execute("insert into orders values (11, 'unseen')")
        done = run("capture", "--once")
        (found,) = (
            f for f in run("check", "--json").facts()["findings"] if f["severity"] == "error"
        )
        assert 'Run `alter publication "' in found["remedy"]
        assert "is then read again by itself" in found["remedy"]
        said = tables(run)["public.orders"]
        assert (done.code, said["error"]) == (1, None)
        assert "no longer contains" in said["differs"]["reason"]
        shop.execute(f"alter publication {begun} add table orders")
        assert run("capture", "--once").code == 0
        assert tables(run)["public.orders"]["differs"] is None

    def test_check_says_that_it_is_lost_and_that_another_is_new(
        self, run: Run, shop: Database, begun: str, tmp_path: Path
    ) -> None:
        shop.execute(
            f"alter publication {begun} drop table orders",
            "create table fresh (id bigint primary key)",
        )
        done = run("check", "--json")
        said = {f["table"]: f for f in done.facts()["findings"] if f["check"] == "publication"}
        assert "no longer contains" in said["public.orders"]["message"]
        assert "Capture adds the table again" in said["public.orders"]["remedy"]
        assert said["public.fresh"] == {
            "check": "publication",
            "table": "public.fresh",
            "severity": "ok",
            "message": "the table is new and will be loaded at the next run",
            "remedy": None,
        }
        lease = Lease(LocalStore(tmp_path / "root"), "capture", WallClock())
        lease.take()
        assert "by the running mirror, within a minute" in run("check").out
        lease.release()
        shop.execute(f"alter publication {begun} add table orders")
        assert run("check").code == 0

    def test_after_a_detach_that_is_not_noted_it_is_named_with_the_way_on(
        self, run: Run, shop: Database, begun: str, tmp_path: Path
    ) -> None:
        """As earlier releases left it."""
        run("detach", "--yes")
        (tmp_path / "root/Files/Mirrorlake/detached.json").unlink()
        done = run("capture", "--once")
        assert f"publication {begun} no longer exists; `mirrorlake detach` removes" in done.error
        assert "Run `mirrorlake repair` to compare all tables" in done.error

    def test_one_that_was_made_again_is_a_gap(self, run: Run, shop: Database, begun: str) -> None:
        shop.execute(
            f"drop publication {begun}",
            "insert into orders values (11, 'unseen')",
            f"create publication {begun} for table orders",
        )
        done = run("capture", "--once")
        assert done.code == 1
        assert "publication" in done.error
        assert "mirrorlake repair" in done.error


def test_a_table_that_lost_its_key_can_be_updated_by_its_users(run: Run, shop: Database) -> None:
    run("capture", "--once")
    shop.execute("alter table orders drop constraint orders_pkey")
    run("capture", "--once")
    shop.execute("update orders set status = 'changed'")
    run("reset", "public.orders", "--yes")
    run("capture", "--once")
    shop.execute("update orders set status = 'again'")
    assert tables(run)["public.orders"]["error"] is None


def test_detach_removes_what_an_interrupted_start_made(
    run: Run, shop: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slot is made, and then the process ends before it can note it."""

    def interrupt(*_: object) -> None:
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(StreamRecord, "established", interrupt)
        with pytest.raises(RuntimeError):
            run("capture", "--once")
    left = "select count(*) from pg_replication_slots where database = current_database()"
    assert shop.sql.execute(left).fetchone() == (1,)
    assert run("detach", "--yes").code == 0
    assert shop.sql.execute(left).fetchone() == (0,)
    assert shop.sql.execute("select count(*) from pg_publication").fetchone() == (0,)


@pytest.mark.parametrize(
    "setting",
    [
        pytest.param("destination: {type: events, url: ./events}", marks=pytest.mark.full),
        "landing: {strict: true}",
    ],
)
def test_check_says_that_a_table_stops_which_cannot_be_read_again(
    run: Run, shop: Database, tmp_path: Path, setting: str
) -> None:
    file = tmp_path / "mirrorlake.yaml"
    file.write_text(f"{file.read_text().partition('spark:')[0]}{setting}\n")
    run("capture", "--once")
    shop.execute(f"alter publication mirrorlake_{shop.name} drop table orders")
    findings = run("check", "--json").facts()["findings"]
    (found,) = [one for one in findings if one["check"] == "publication"]
    assert (found["severity"], found["table"]) == ("error", "public.orders")
    assert found["remedy"] == (
        "Capture stops it. Run `mirrorlake reset public.orders` to load it again."
    )
    run("capture", "--once")
    assert "mirrorlake reset public.orders" in tables(run)["public.orders"]["error"]["hint"]
