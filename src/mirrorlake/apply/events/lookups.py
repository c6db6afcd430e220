"""Looks up the keys of many events while the events are checked and ordered.

Which keys a batch changes is known only afterwards, but most events change their key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from mirrorlake.apply.events.reading import TableEvents
from mirrorlake.apply.events.remembered.merging import distinct
from mirrorlake.apply.events.remembered.state import EventTableState
from mirrorlake.apply.events.rows import keys_of_events
from mirrorlake.delta.lookup.early_lookup import EarlyLookup, Search

MANY = 50_000
"""Events below which nothing is looked up early: a lookup is short then, and events that change
nothing, such as those that come again after a crash, should not read the table."""


@dataclass(frozen=True, slots=True)
class Lookups:
    """Find the rows of some keys: in the state, and in the table; None to look into the table
    later."""

    state: Search
    table: Search | None = None


@contextmanager
def looking_up(
    state: EventTableState, events: Sequence[TableEvents], search: Lookups
) -> Iterator[Lookups]:
    """The same lookups, which begin now if there are many events."""
    if sum(map(len, events)) < MANY:
        yield Lookups(search.state)
        return
    # One thread, because each lookup has several: the state is needed first.
    pool = ThreadPoolExecutor(1, thread_name_prefix="lookup")
    try:
        keys = pool.submit(lambda: _keys(state, events))
        yield Lookups(
            EarlyLookup(search.state, keys, pool),
            search.table and EarlyLookup(search.table, keys, pool),
        )
    finally:
        pool.shutdown(cancel_futures=True)


def _keys(state: EventTableState, events: Sequence[TableEvents]) -> pa.Table:
    return distinct(keys_of_events(state, events))
