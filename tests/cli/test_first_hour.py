"""The first hour of a new user: each wrong turn, and its remedy followed to the letter."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from mirrorlake.demo.server import EmbeddedServer
from mirrorlake.sources.postgresql.refusals import failure
from tests.cli.conftest import PROJECT, Run
from tests.cli.terminal import Terminal
from tests.conftest import Database

pytestmark = pytest.mark.postgres

STATEMENT = re.compile(r"`((?:alter|grant|create) [^`]*)`")


def errors(run: Run) -> list[dict[str, Any]]:
    done = run("check", "--json")
    return [f for f in done.facts()["findings"] if f["severity"] == "error"]


def statements(finding: dict[str, Any]) -> list[str]:
    """The first way out of a finding, as it stands there; of a second way nothing."""
    return STATEMENT.findall(finding["remedy"])[:1]


class TestWrongTurns:
    @pytest.mark.parametrize(
        ("wrong", "told", "remedy"),
        [
            (lambda url: re.sub(r":[^:@]*@", ":wrong@", url, count=1), "rejected", "password in"),
            (lambda url: f"{url}&port=1", "does not answer", "host and port in the URL"),
            (lambda url: re.sub(r"/test\d+\?", "/none?", url), "rejected", "database in the URL"),
            (lambda url: url.replace("://postgres:", "://nobody:"), "rejected", "user"),
        ],
        ids=["password", "port", "database", "user"],
    )
    @pytest.mark.parametrize("command", [("check",), ("run",)])
    def test_a_url_that_is_wrong(
        self,
        run: Run,
        shop: Database,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        wrong: Callable[[str], str],
        told: str,
        remedy: str,
        command: tuple[str, ...],
    ) -> None:
        monkeypatch.setenv("SOURCE", wrong(shop.url))
        done = run(*command)
        assert done.code == 3
        said = done.out + done.error
        assert told in said
        assert remedy in said
        assert not (tmp_path / "root").exists()
        monkeypatch.setenv("SOURCE", shop.url)
        assert run("check").code == 0

    def test_a_role_without_rights_gets_them_one_remedy_after_the_other(
        self, run: Run, shop: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        user = f"novice_{shop.name}"
        shop.execute(f"create role {user} login password '{user}'")
        monkeypatch.setenv("SOURCE", shop.url_as(user))
        done = run("run")
        assert done.code == 1
        said = f"{done.out}{done.error}"
        for finding in errors(run):
            assert finding["message"] in said
            assert finding["remedy"] in said
        rounds = 0
        while found := errors(run):
            rounds += 1
            assert rounds < 10, found
            todo = [statement for finding in found for statement in statements(finding)]
            assert todo, found
            shop.execute(*dict.fromkeys(todo))
        assert rounds >= 1
        assert run("capture", "--once").code == 0
        run("detach", "--yes")
        shop.execute(f"drop owned by {user}")

    def test_a_pattern_that_matches_nothing(self, run: Run, shop: Database, tmp_path: Path) -> None:
        file = tmp_path / "mirrorlake.yaml"
        good = file.read_text()
        file.write_text(good.replace("public.*", "Public.*"))
        done = run("check")
        assert done.code == 1
        assert "Public.* in source.tables matches no table" in done.out
        assert "names are case-sensitive" in done.out
        assert run("run").code == 1
        file.write_text(good)
        assert run("check").code == 0

    def test_a_field_that_is_misspelt(self, run: Run, shop: Database, tmp_path: Path) -> None:
        file = tmp_path / "mirrorlake.yaml"
        good = file.read_text()
        file.write_text(good.replace("root:", "roots:"))
        done = run("run")
        assert done.code == 2
        named = re.search(r"Did you mean `?(\w+)`?\?", done.error)
        assert named, done.error
        file.write_text(file.read_text().replace("roots:", f"{named[1]}:"))
        assert run("check").code == 0

    def test_another_directory(
        self, run: Run, shop: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other = tmp_path / "other"
        other.mkdir()
        monkeypatch.chdir(other)
        done = run("check")
        assert done.code == 2
        assert "the project file does not exist (mirrorlake.yaml)" in done.error
        assert "name another with `--config`" in done.error
        assert run("check", "--config", str(tmp_path / "mirrorlake.yaml")).code == 0
        assert list(other.iterdir()) == []

    def test_a_root_that_holds_other_things(self, run: Run, shop: Database, tmp_path: Path) -> None:
        (tmp_path / "photos/of_us").mkdir(parents=True)
        file = tmp_path / "mirrorlake.yaml"
        good = file.read_text()
        file.write_text(good.replace("./root", "./photos"))
        done = run("run")
        assert done.code == 2
        assert "holds other things, such as of_us" in done.error
        assert "Name the folder that contains Files/LandingZone, or a new one." in done.error
        file.write_text(good)
        assert run("check").code == 0

    @pytest.mark.full
    def test_a_server_whose_wal_is_not_logical(
        self, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with EmbeddedServer(18, {"wal_level": "replica"}) as server:
            with psycopg.connect(server.url, autocommit=True) as sql:
                sql.execute("create table orders (id bigint primary key)")
            monkeypatch.setenv("SOURCE", server.url)
            (tmp_path / "mirrorlake.yaml").write_text(PROJECT.format(name="replica"))
            assert run("run").code == 1
            with psycopg.connect(server.url, autocommit=True) as sql:  # as `repair` does
                with pytest.raises(psycopg.OperationalError) as refused:
                    sql.execute("select pg_create_logical_replication_slot('s', 'pgoutput')")
                assert "`mirrorlake check`" in failure(refused.value)[1]
            (finding,) = (f for f in errors(run) if f["check"] == "wal_level")
            assert "restart PostgreSQL" in finding["remedy"]
            (statement,) = statements(finding)
            with psycopg.connect(server.url, autocommit=True) as sql:
                sql.execute(statement)
            server.kill()
            del server._settings["wal_level"]  # an option would be stronger than the statement
            server.start()
            assert errors(run) == []


SHOP = "insert into orders select g, 'new' from generate_series({}, {}) g"


@pytest.fixture
def terminals(tmp_path: Path, shop: Database) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def begin(*arguments: str, **options: Any) -> Terminal:
        command = [sys.executable, "-m", "mirrorlake", *arguments]
        opened.append(Terminal(command, tmp_path, **options))
        return opened[-1]

    yield begin
    for terminal in opened:
        terminal.close()


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.parametrize("columns", [80, pytest.param(200, marks=pytest.mark.long)])
def test_the_way_from_nothing_to_a_change_that_is_read(
    run: Run,
    shop: Database,
    terminals: Callable[..., Terminal],
    columns: int,
    tmp_path: Path,
) -> None:
    assert run("check").code == 0
    first = terminals("run", columns=columns)
    first.until("following; Ctrl-C stops", 300)
    block = [line for line in first.lines if line.startswith(("mirrorlake ", "  "))]
    assert max(map(len, block)) <= columns
    assert "Traceback" not in first.text
    shop.execute(SHOP.format(100, 149))
    first.until("60 applied", 120)

    second = terminals("run", columns=columns)
    assert second.ended(60) == 1
    assert second.cpu_seconds < 3  # other tests run on the same cores
    assert "already active here" in second.text

    begun = time.monotonic()
    first.presses_ctrl_c()
    assert first.ended(60) == 0
    assert time.monotonic() - begun < 6
    assert "60 rows applied, commits: " in first.text
    assert "Traceback" not in first.text
    assert (tmp_path / "root/Files/Mirrorlake/run.log").read_text().count("batch_applied") >= 2

    assert run("status").code == 0
    counted = run("sql", "select count(*) as n from public.orders", "--json").facts()
    assert counted == [{"n": 60}]
    feed = run("feed", "public.orders", "--from", "beginning")
    assert feed.code == 0
    assert "insert" in feed.out
    assert run("status", "--json").facts()["errors"] == []
