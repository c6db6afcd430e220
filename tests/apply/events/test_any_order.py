"""Any permutation and duplication of events, cut into any batches, makes the same table."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrorlake.apply.events import file_reader
from mirrorlake.events.decode.json import events as json_events
from tests.apply.events import drawn_files
from tests.apply.events.bucket import Bucket
from tests.apply.events.drawn_files import as_written, line, read, rows_of
from tests.apply.events.killed_tables import POINTS, Killed, looked_up, opened, rows_after
from tests.mirror.event_order.drawn import SOURCES, arrivals, many
from tests.mirror.event_order.model import Event, table_of
from tests.profiles import some, tries


def expected(source: str, events: Sequence[Event]) -> dict[int, int]:
    return table_of(source, as_written(events))


@pytest.mark.clause("ST-219", "ST-233", "ST-248", "ST-249")
@pytest.mark.parametrize("source", SOURCES)
@settings(max_examples=tries(12, long=10_000), deadline=None)
@given(data=st.data())
def test_any_order_with_crashes_makes_the_same_table(source: str, data: st.DataObject) -> None:
    events, batches = data.draw(arrivals(source))
    rows = rows_after(data, source, batches)
    assert len(rows) == len({row["id"] for row in rows})
    assert {row["id"]: row["v"] for row in rows} == expected(source, events)


@pytest.mark.clause("ST-234", "ST-239", "ST-251")
@pytest.mark.parametrize("source", SOURCES)
@settings(max_examples=tries(12, long=1_000), deadline=None)
@given(data=st.data())
def test_any_order_with_crashes_keeps_every_event_once(source: str, data: st.DataObject) -> None:
    """In a table without key, or with mode `append`."""
    events, batches = data.draw(arrivals(source))
    for number, event in enumerate(events):
        event["uuid"] = f"u{number}"
    key, is_append = data.draw(st.sampled_from([("id",), ()])), data.draw(st.booleans())
    rows = rows_after(data, source, batches, key, is_append=is_append or bool(key))
    found = {row["datastream_metadata"]["UUID"]: (row.get("id"), row["v"]) for row in rows}
    assert len(found) == len(rows)
    if key and all(one["key"] is None for one in events):
        assert not found  # a table begins when the type of its key is known
        return
    assert found == {one["uuid"]: (one["key"], one["payload"]) for one in events}


@pytest.mark.clause("ST-011", "ST-180", "ST-181", "ST-184", "ST-219", "ST-232")
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("seed", range(tries(1, long=100)))
def test_a_hundred_keys_in_any_order_with_crashes_make_the_same_table(
    source: str, seed: int
) -> None:
    """Each key is a case of its own: no event of one says anything of another."""
    events = many(source, seed, 100)
    random = Random(seed)
    arriving = events + random.choices(events, k=len(events) // 2)
    random.shuffle(arriving)
    with tempfile.TemporaryDirectory() as root, looked_up(early=seed % 2 == 0):
        table = opened(root, source)
        while arriving:
            count, dies = random.choice([50, 200, 400]), random.choice([None, *POINTS])
            batch, arriving = arriving[:count], arriving[count:]
            with suppress(Killed):
                opened(root, source, dies).apply(read(source, batch))
            table.apply(read(source, batch))
        rows = rows_of(f"{root}/Tables/shop/orders")
    assert len(rows) == len({row["id"] for row in rows})
    assert {row["id"]: row["v"] for row in rows} == expected(source, events)


@pytest.mark.parametrize("source", some(SOURCES))
@settings(max_examples=tries(20, long=300), deadline=None)
@given(data=st.data())
def test_any_order_of_files_and_of_their_parts_makes_the_same_table(
    source: str, data: st.DataObject
) -> None:
    events, batches = data.draw(arrivals(source))
    with (
        tempfile.TemporaryDirectory() as root,
        looked_up(early=data.draw(st.booleans())),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(file_reader, "MOST_TOGETHER", data.draw(st.sampled_from([1, 64 << 20])))
        patch.setattr(json_events, "_MOST_TOGETHER", data.draw(st.sampled_from([2, 20_000])))
        bucket = Bucket(Path(root))
        bucket.settings = drawn_files.settings(source, bucket.folder)
        for number, batch in enumerate(filter(None, batches)):
            bucket.put(f"{number}.jsonl", *(line(source, event) for event in batch), minute="")
            bucket.cycle(anew=data.draw(st.booleans()))
        bucket.cycle(anew=True)
        rows = rows_of(bucket.root / "Tables/shop/orders")
    assert len(rows) == len({row["id"] for row in rows})
    assert {row["id"]: row["v"] for row in rows} == expected(source, events)
