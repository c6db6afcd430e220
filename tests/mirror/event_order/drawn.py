"""Events of each source, drawn from few values, so that they meet and tie."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

from hypothesis import strategies as st

from tests.mirror.event_order.model import Event

SOURCES = ["mysql", "oracle", "oracle-strict", "postgresql", "sqlserver", "salesforce", "mongodb"]

# Numbers whose order as text is another one.
_NUMBERS = st.sampled_from([2, 9, 10, 99, 100])
_TIMES = st.sampled_from([0, 3, 9, 10, 11, 20, 21, 100])
_UUIDS = st.one_of(
    st.none(),
    st.sampled_from(["9a7e-1", "b"]),
    st.builds(lambda batch, n: f"{batch}{n:08b}", st.sampled_from("ab"), st.integers(0, 3)),
)


@st.composite
def _metadata(draw: st.DrawFn, source: str) -> dict[str, Any]:
    match source:
        case "mysql":
            base = draw(st.sampled_from(["mysql-bin", "mysql-bin", "other"]))
            found = {
                "log_file": f"{base}.{draw(st.sampled_from([999999, 1000000]))}",
                "log_position": draw(_NUMBERS),
            }
            if draw(st.integers(0, 4)) == 4:
                found["sort_keys"] = ["0", "", "0", str(draw(_NUMBERS))]
            return found
        case "oracle" | "oracle-strict":
            record = [f"{draw(_NUMBERS):x}" for _part in range(3)]
            return {
                "scn": draw(st.one_of(st.none(), _NUMBERS, _NUMBERS)),
                "rs_id": f" 0x{'.'.join(record)} ",
                "ssn": draw(_NUMBERS),
                "tx_id": draw(st.sampled_from(["t", "u"])),
                "row_id": draw(st.sampled_from(["AAA", "AAB"])),
            }
        case "postgresql":
            return {"lsn": draw(st.sampled_from(["9/0", "16/0", "16/A", "16/10"]))}
        case "sqlserver":
            return {"lsn": draw(st.sampled_from(["9:0:1", "16:0:0", "16:A:0", "16:10:0"]))}
        case "salesforce":
            return {}
        case _:
            return {"sort_keys": [str(draw(_NUMBERS)), str(draw(_NUMBERS))]}


@st.composite
def event(draw: st.DrawFn, source: str) -> Event:
    backfill = draw(st.integers(0, 3)) == 0
    metadata = {"tx_id": None, "row_id": None} | draw(_metadata(source))
    deletion = not backfill and draw(st.booleans())
    # A deletion of Oracle may name the row alone, one in three does here.
    without_key = source.startswith("oracle") and deletion and draw(st.integers(0, 2)) == 0
    key, payload = None if without_key else draw(st.integers(1, 3)), draw(st.integers(0, 5))
    return {
        "key": key,
        "payload": payload,
        # The key is part of it, as of each row.
        "content": 4 * payload + (key or 0),
        "backfill": backfill,
        "deletion": deletion,
        "uuid": draw(_UUIDS),
        "source_timestamp": draw(_TIMES),
        "read_timestamp": draw(_TIMES),
        **metadata,
    }


@st.composite
def arrivals(draw: st.DrawFn, source: str) -> tuple[list[Event], list[list[Event]]]:
    """Events, and the same with duplicates, in any order, cut into batches."""
    events = draw(st.lists(event(source), min_size=1, max_size=8))
    again = draw(st.lists(st.sampled_from(events), max_size=5))
    shuffled = draw(st.permutations(events + again))
    cuts = sorted(draw(st.sets(st.integers(0, len(shuffled)), max_size=4)))
    bounds = [0, *cuts, len(shuffled)]
    batches = [shuffled[a:b] for a, b in itertools.pairwise(bounds)]
    return events, batches


def many(source: str, seed: int, keys: int) -> list[Event]:
    """Events of many keys, as `event` draws them, five of each in the mean; no key of one occurs
    in those of another, nor do their transactions."""
    random = Random(seed)
    numbers, times = [2, 9, 10, 99, 100], [0, 3, 9, 10, 11, 20, 21, 100]
    found = []
    for index in range(5 * keys):
        key = random.randrange(keys)
        record = ".".join(f"{random.choice(numbers):x}" for _part in range(3))
        lsns = {"postgresql": ["9/0", "16/0", "16/A"], "sqlserver": ["9:0:1", "16:0:0", "16:A:0"]}
        backfill = random.randrange(4) == 0
        deletion = not backfill and random.random() < 0.5
        nameless = source.startswith("oracle") and deletion and random.randrange(3) == 0
        sort_keys = [str(random.choice(numbers)) for _part in range(random.choice([2, 3, 4]))]
        found.append(
            {
                "key": None if nameless else key,
                "payload": index,
                "backfill": backfill,
                "deletion": deletion,
                "uuid": random.choice([None, "9a7e-1", f"a{random.randrange(4):08b}", "b"]),
                "source_timestamp": random.choice(times),
                "read_timestamp": random.choice(times),
                "log_file": random.choice(["mysql-bin.999999", "mysql-bin.1000000", "other.7"]),
                "log_position": random.choice(numbers),
                "scn": random.choice([None, *numbers]),
                "rs_id": f" 0x{record} ",
                "ssn": random.choice(numbers),
                "lsn": random.choice(lsns.get(source, [None])),
                "sort_keys": sort_keys if source in {"mysql", "mongodb"} else None,
                "tx_id": f"t{key}",
                "row_id": random.choice(["AAA", "AAB"]),
            }
        )
    return found
