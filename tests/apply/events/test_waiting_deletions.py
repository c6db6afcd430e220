"""Deletions of Oracle that wait for the event with their key are counted, and can be named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mirrorlake.apply.events.remembered.state import StateFolder, states
from mirrorlake.apply.events.remembered.waiting import WaitingDeletions, waiting_deletions
from mirrorlake.model.table import TableId
from mirrorlake.storage.local import LocalStore
from tests.apply.events.bucket import Bucket
from tests.apply.events.genuine import SECOND, oracle

ORDERS = TableId("SHOP", "ORDERS")
NAMELESS = {"ID": None, "V": None}


def waiting(bucket: Bucket) -> tuple[int | None, list[tuple[str, str]]]:
    """How many wait, and the row and transaction of each."""
    store = LocalStore(bucket.root)
    named = [(one.row_id, one.tx_id) for found in waiting_deletions(store) for one in found.named]
    return states(store)[ORDERS].waiting, named


@pytest.mark.clause("ST-230")
def test_deletions_that_wait_are_counted_until_the_event_with_their_key_is_there(
    tmp_path: Path,
) -> None:
    bucket = Bucket(tmp_path)
    row = {"ID": 1, "V": 1}
    bucket.put("a.jsonl", oracle(10, row, "INSERT", row_id="AA", tx_id="T1"))
    bucket.cycle()
    assert waiting(bucket) == (0, [])
    elsewhere = oracle(20, NAMELESS, "DELETE", row_id="AA", tx_id="T2")
    early = oracle(40, NAMELESS, "DELETE", row_id="AC", tx_id="T3")
    bucket.put("b.jsonl", elsewhere)
    bucket.put("c.jsonl", early)
    bucket.cycle()
    assert waiting(bucket) == (2, [("AA", "T2"), ("AC", "T3")])
    assert bucket.errors == {}
    bucket.put("d.jsonl", elsewhere, oracle(50, {"ID": 9, "V": 9}, row_id="AX", tx_id="T9"))
    bucket.cycle(anew=True)  # again, beside others
    assert waiting(bucket) == (2, [("AA", "T2"), ("AC", "T3")])
    bucket.put("e.jsonl", oracle(30, {"ID": 3, "V": 3}, "INSERT", row_id="AC", tx_id="T3"))
    bucket.cycle()
    assert waiting(bucket) == (1, [("AA", "T2")])
    assert [row["ID"] for row in bucket.plain("SHOP/ORDERS")] == [1, 9]
    bucket.put("f.jsonl", oracle(15, row, row_id="AA", tx_id="T2"))
    bucket.cycle()
    assert waiting(bucket) == (0, [])
    assert [row["ID"] for row in bucket.plain("SHOP/ORDERS")] == [9]


def test_deletions_that_wait_are_counted_after_pruning_and_after_a_repair(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", oracle(10, {"ID": 1, "V": 1}, "INSERT", row_id="AA", tx_id="T1"))
    bucket.put("b.jsonl", oracle(20, NAMELESS, "DELETE", row_id="AA", tx_id="T2"))
    bucket.cycle()
    later = SECOND + 100 * 24 * 3600 * 1000
    row = {"ID": 2, "V": 2}
    bucket.put("c.jsonl", oracle(30, row, row_id="AB", tx_id="T4", source_timestamp=later))
    bucket.cycle()
    assert waiting(bucket) == (1, [("AA", "T2")])
    bucket.consumer().rebuild(ORDERS)
    assert waiting(bucket) == (1, [("AA", "T2")])


def test_a_record_without_the_number_gets_it_with_the_next_batch(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", oracle(10, {"ID": 1, "V": 1}, "INSERT", row_id="AA", tx_id="T1"))
    bucket.put("b.jsonl", oracle(20, NAMELESS, "DELETE", row_id="AA", tx_id="T2"))
    bucket.cycle()
    folder = StateFolder(LocalStore(bucket.root), ORDERS)
    record = bucket.root / folder.path / f"{folder.numbers()[-1]:020d}.json"
    known = json.loads(record.read_text())
    assert known.pop("waiting") == 1
    record.write_text(json.dumps(known))
    assert waiting(bucket) == (None, [])
    bucket.put("c.jsonl", oracle(30, {"ID": 2, "V": 2}, row_id="AB", tx_id="T4"))
    bucket.cycle()
    assert waiting(bucket) == (1, [("AA", "T2")])


def test_what_waits_cannot_be_named_where_what_was_seen_is_damaged(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.put("a.jsonl", oracle(10, {"ID": 1, "V": 1}, "INSERT", row_id="AA", tx_id="T1"))
    bucket.put("b.jsonl", oracle(20, NAMELESS, "DELETE", row_id="AA", tx_id="T2"))
    bucket.cycle()
    store = LocalStore(bucket.root)
    state = states(store)[ORDERS]
    files = bucket.root / StateFolder(store, ORDERS).path / "files"
    (files / state.changes[0]["path"]).unlink()
    assert waiting_deletions(store) == [WaitingDeletions(ORDERS, 1)]
