"""The order of events as one would write it without columns: slow, plain, one rule a line.

An event is a dict: `key`, `payload`, `backfill`, `deletion`, the generic fields and the metadata of
its source, and `content`, by which events are compared that are alike in all else (their payload,
where it is not given). `table_of` says what all events together make of the table; `Consumer` gets
them in batches and goes by the product.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from mirrorlake.mirror.event_order import ORDER, RULES, complete, records, resolve
from mirrorlake.mirror.event_order.resolution import DECIDES
from mirrorlake.mirror.event_order.rollbacks import INCOMPLETE

Event = dict[str, Any]

GUARD = 10

METADATA = pa.schema(
    [
        ("log_file", pa.string()),
        ("log_position", pa.int64()),
        ("scn", pa.int64()),
        ("rs_id", pa.string()),
        ("ssn", pa.int64()),
        ("lsn", pa.string()),
        ("tx_id", pa.string()),
        ("row_id", pa.string()),
        ("sort_keys", pa.list_(pa.string())),
        ("uuid", pa.string()),
        ("source_timestamp", pa.int64()),
        ("read_timestamp", pa.int64()),
    ]
)


def place(source: str, event: Event) -> tuple[str, tuple[int, ...]]:
    """Lane and place of a change."""
    if source == "mysql":
        base, number = log_file(event["log_file"])
        if len(event.get("sort_keys") or ()) > 3:
            return "sequence", (int(event["sort_keys"][3]), number, event["log_position"])
        return base, (number, event["log_position"])
    if source == "oracle":
        scn, record = event["scn"], record_set(event["rs_id"])
        return ("record" if scn is None else "scn"), (scn or 0, *record, event["ssn"])
    if source == "oracle-strict":
        return "", (*record_set(event["rs_id"]), event["ssn"])
    if source == "mongodb":
        return "", tuple(int(key) for key in event["sort_keys"][:2])
    separator = {"postgresql": "/", "sqlserver": ":", "salesforce": None}[source]
    log = event["lsn"].split(separator) if separator else []
    return "", (event["source_timestamp"], *(int(part, 16) for part in log))


def log_file(name: str) -> tuple[str, int]:
    base, digits = re.fullmatch(r"(.*?)([0-9]*)", name).groups()
    return base, int(digits or 0)


def record_set(text: str) -> tuple[int, ...]:
    return tuple(int(part or "0", 16) for part in text.strip().removeprefix("0x").split("."))


def uuid_parts(event: Event) -> tuple[str, int]:
    uuid = event["uuid"] or ""
    counted = re.fullmatch(r"(.*)([01]{8})", uuid)
    return (counted[1], int(counted[2], 2)) if counted else (uuid, 0)


def content(event: Event) -> int:
    return int(event.get("content", event["payload"]))


def order(source: str, event: Event) -> tuple[Any, ...]:
    """By which changes of one log are compared."""
    deletion, read = event["deletion"], event["read_timestamp"]
    rank: tuple[Any, ...] = (deletion, read) if source == "salesforce" else (not deletion,)
    rest = (event["source_timestamp"], read, deletion, content(event))
    return (place(source, event)[1], rank, uuid_parts(event), *rest)


def backfill_order(event: Event) -> tuple[Any, ...]:
    times = event["source_timestamp"], event["read_timestamp"]
    return (*times, uuid_parts(event), event["deletion"], content(event))


def completed(source: str, events: Sequence[Event]) -> list[Event]:
    """The deletions without a key that have found theirs."""
    found = []
    for event in events:
        if event["key"] is None:
            row = [
                one
                for one in events
                if one["key"] is not None
                and not one["backfill"]
                and (one["tx_id"], one["row_id"]) == (event["tx_id"], event["row_id"])
                and place(source, one)[0] == place(source, event)[0]
                and order(source, one) < order(source, event)
            ]
            if row:
                last = max(row, key=lambda one: order(source, one))
                found.append({**event, "key": last["key"]})
    return found


def decider(source: str, events: Iterable[Event]) -> Event | None:
    """The event of one key that says what its row is (ST-205, ST-215)."""
    logs: dict[str, Event] = {}
    fills = []
    for event in events:
        if event["backfill"]:
            fills.append(event)
            continue
        log = place(source, event)[0]
        logs[log] = max(logs.get(log, event), event, key=lambda one: order(source, one))
    change = max(
        logs.items(), key=lambda item: (item[1]["source_timestamp"], item[0]), default=(None, None)
    )[1]
    fill = max(fills, key=backfill_order, default=None)
    if change is None or fill is None:
        return change or fill
    older = fill["source_timestamp"] - change["source_timestamp"]
    return fill if older > GUARD else change


def table_of(source: str, events: Sequence[Event]) -> dict[int, int]:
    """Key to payload, of all events together."""
    whole = [event for event in events if event["key"] is not None]
    whole += completed(source, events)
    by_key: dict[int, list[Event]] = {}
    for event in whole:
        by_key.setdefault(event["key"], []).append(event)
    rows = {}
    for key, of_key in by_key.items():
        last = decider(source, of_key)
        if last is not None and not last["deletion"]:
            rows[key] = last["payload"]
    return rows


class Consumer:
    """A table, and what is remembered beside it, as a consumer keeps them."""

    def __init__(self, source: str) -> None:
        self._source, self._rule = source, RULES[source]
        self.table: dict[int, int] = {}
        schema = pa.schema([("key", pa.int64()), *ORDER, (DECIDES, pa.bool_())])
        self._state = schema.empty_table()
        self._held: dict[int, int] = {}  # of rows of the state that do not decide
        extra = [(name, pa.string()) for name in ("tx_id", "row_id")]
        memory = pa.schema([("key", pa.int64()), *ORDER, *extra, (INCOMPLETE, pa.bool_())])
        self._memory = memory.empty_table()

    @property
    def state(self) -> list[tuple[Any, ...]]:
        return sorted(map(repr, self._state.to_pylist()))

    def apply(self, batch: Sequence[Event]) -> None:
        rows = rows_of(self._source, batch)
        payload = [event["payload"] for event in batch]
        derived_before, derived = self._roll_back(batch, rows)
        whole = [index for index, event in enumerate(batch) if event["key"] is not None]
        rows, payload = rows.take(pa.array(whole, pa.int64())), [payload[i] for i in whole]
        touched = set(rows["key"].to_pylist())
        touched |= set(derived["key"].to_pylist()) | set(derived_before["key"].to_pylist())
        mine = np.array([key in touched for key in self._state["key"].to_pylist()], bool)
        before = np.flatnonzero(mine)
        known = self._state.filter(pa.array(mine))
        found = resolve(self._rule, GUARD, ["key"], known, rows, derived)
        self._keep(found, known, rows, before, payload, mine)
        for key in found.deleted["key"].to_pylist():
            self.table.pop(key, None)
        for index in found.upserts.tolist():
            self.table[rows["key"][index].as_py()] = payload[index]

    def _keep(self, found, known, rows, before, payload, mine) -> None:
        old = dict(self._held)
        of_table = dict(self.table)
        for index in found.restored.tolist():
            self.table[known["key"][index].as_py()] = old[int(before[index])]
        others = np.flatnonzero(~mine)
        held = {new: old[int(row)] for new, row in enumerate(others) if int(row) in old}
        for number, (origin, keep) in enumerate(zip(found.origin, found.held, strict=True)):
            if keep:
                place = len(others) + number
                if origin >= known.num_rows:
                    held[place] = payload[origin - known.num_rows]
                elif known[DECIDES][int(origin)].as_py():
                    held[place] = of_table[known["key"][int(origin)].as_py()]
                else:
                    held[place] = old[int(before[origin])]
        self._held = held
        self._state = pa.concat_tables(
            [self._state.filter(pa.array(~mine)), found.state(known, rows)]
        ).combine_chunks()

    def _roll_back(self, batch: Sequence[Event], rows: pa.Table) -> tuple[pa.Table, pa.Table]:
        if not self._source.startswith("oracle"):
            return rows.slice(0, 0), rows.slice(0, 0)
        changes = pa.array([not event["backfill"] for event in batch], pa.bool_())
        for name in ("tx_id", "row_id"):
            rows = rows.append_column(name, pa.array([e[name] for e in batch], pa.string()))
        rows = rows.append_column(
            INCOMPLETE, pa.array([e["key"] is None for e in batch], pa.bool_())
        )
        before = complete(["key"], self._memory).derived
        memory = pa.concat_tables([self._memory, rows.filter(changes)])
        found = complete(["key"], memory)
        self._memory = found.memory
        return before, found.derived


def rows_of(source: str, batch: Sequence[Event]) -> pa.Table:
    """The records of a batch, with their keys."""
    columns = [pa.array([event.get(f.name) for event in batch], f.type) for f in METADATA]
    checked = records(
        RULES[source],
        pa.table(columns, schema=METADATA),
        backfill=np.array([event["backfill"] for event in batch], bool),
        deletion=np.array([event["deletion"] for event in batch], bool),
        content=np.array([content(event) for event in batch], np.uint64),
    )
    assert checked.readable.all()
    keys = pa.array([event["key"] for event in batch], pa.int64())
    return checked.rows.add_column(0, "key", keys)
