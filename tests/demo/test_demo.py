"""The demo, small: it verifies, and it notices when it should not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from mirrorlake.cli.demo import _show_next_commands
from mirrorlake.demo.freshness import Freshness
from mirrorlake.demo.verify import verify
from tests.conftest import Database

pytestmark = [pytest.mark.postgres, pytest.mark.spark]


@pytest.mark.full
def test_the_demo_mirrors_a_shop_and_verifies_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mirrorlake.cli.main", "demo", "--rows", "20000", "--seconds", "5",
         "--dir", str(tmp_path), "--json"],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["verified"] is True
    assert {t["table"] for t in found["tables"]} >= {"shop.orders", "warehouse.stock"}
    assert all(table["verified"] for table in found["tables"])
    assert sum(table["updates"] for table in found["tables"]) > 0
    assert sum(table["deletes"] for table in found["tables"]) > 0
    # Carts are never deleted one by one: only a truncation takes any away.
    assert next(t for t in found["tables"] if t["table"] == "shop.carts")["deletes"] > 0
    assert found["load_rows_per_second"] > 0
    assert found["freshness_seconds"]["p50"] > 0


@pytest.mark.full
def test_verification_finds_a_wrong_value_and_a_missing_row(
    database: Database, tmp_path: Path
) -> None:
    database.execute(
        "create table public.t (id bigint, price numeric(6, 2), at timestamptz, tags text[])",
        "insert into public.t values (1, 1.50, '2024-01-01 10:00+00', '{a,null}')",
        "insert into public.t values (2, 2, null, null)",
    )
    moment = pa.array([1704103200000000, None], pa.timestamp("us", "UTC"))
    rows = pa.table(
        {
            "id": pa.array([1, 2]),
            "price": pa.array(["1.50", "2.00"]).cast(pa.decimal128(6, 2)),
            "at": moment,
            "tags": ['["a",null]', None],
        }
    )
    on = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(tmp_path / "good", rows, configuration=on)
    write_deltalake(tmp_path / "short", rows.slice(0, 1), configuration=on)
    wrong = rows.set_column(1, "price", pa.array(["1.51", "2.00"]).cast(pa.decimal128(6, 2)))
    write_deltalake(tmp_path / "wrong", wrong, configuration=on)

    def verdict(name: str):
        found = verify(database.url, {"public.t": tmp_path / name}, tmp_path, lambda _name: None)
        return found[0]

    assert verdict("good").verified
    assert (verdict("short").missing, verdict("short").unexpected) == (1, 0)
    assert (verdict("wrong").missing, verdict("wrong").unexpected) == (1, 1)


@pytest.mark.full
def test_the_commands_to_look_further_work_as_they_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "a demo" / "lake"
    write_deltalake(root / "Tables/shop/products", pa.table({"id": [7]}))
    program = Path(sys.executable).with_name("mirrorlake")
    monkeypatch.setattr(sys, "argv", [str(program), "demo"])
    _show_next_commands(root, is_temporary=True)
    said = [line.strip() for line in capsys.readouterr().out.splitlines()]
    (look,) = [line for line in said if "from shop.products" in line]
    done = subprocess.run(look, shell=True, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [{"id": 7}]
    (remove,) = [line for line in said if line.startswith("rm ")]
    subprocess.run(remove, shell=True, check=True)
    assert not root.parent.exists()


def test_freshness_is_unknown_without_a_marker() -> None:
    assert Freshness.of([]).p50 is None


def test_freshness_is_read_off_the_sorted_ages() -> None:
    found = Freshness.of([0.1 * n for n in range(1, 101)])
    assert (found.p50, found.p99, found.max) == (5.0, 9.9, 10.0)
