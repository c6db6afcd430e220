"""What the events of the changes of a source tell: the kind of each change, its time and its place
in the order (ST-096 to ST-106, ST-199 to ST-204)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.events.change_types import ChangeType, inserted, rekeyed, updated
from mirrorlake.events.envelope import EventSource
from mirrorlake.events.rows import Constant
from mirrorlake.model.change import Marker

KEY_CHANGE_DELAY_MS = 1000
"""The source timestamp of MySQL's UPDATE-INSERT is this much later than that of its UPDATE-DELETE
(ST-103)."""


class Change(IntEnum):
    """What an event is made of. OLD_KEY, NEW_KEY: the halves of an update that changes the key, the
    deletion first (ST-102, ST-104), where the source names them apart."""

    INSERT = Marker.INSERT
    UPDATE = Marker.UPDATE
    DELETE = Marker.DELETE
    TRUNCATE = 3
    OLD_KEY = 4
    NEW_KEY = 5


_IS_DELETION = np.isin(list(Change), [Change.DELETE, Change.TRUNCATE, Change.OLD_KEY])


def change_facts(source: EventSource, changes: np.ndarray) -> dict[str, pa.Array | Constant]:
    """`change_type` and `is_deleted` of changes, in the words of the source. changes: of `Change`;
    int8. Raises ValueError for a change that the source does not have."""
    halves = rekeyed(source)
    if halves is None and (changes >= Change.OLD_KEY).any():
        raise ValueError(f"no key of {source} changes")
    old, new = halves or (ChangeType.DELETE, inserted(source))
    words = [inserted(source), updated(source), ChangeType.DELETE, ChangeType.TRUNCATE, old, new]
    return {
        "is_deleted": pa.array(_IS_DELETION[changes]),
        "change_type": pa.array(list(map(str, words))).take(pa.array(changes.astype(np.int32))),
    }


def source_times(
    source: EventSource, changes: np.ndarray, changed: np.ndarray, *, is_delayed: bool = True
) -> np.ndarray:
    """The source timestamps of changes, which the sort keys repeat.

    changed: int64, milliseconds, when each change was made. is_delayed: the second half of a change
        of the key is later for MySQL, as in genuine files (ST-103).
    """
    if source is not EventSource.MYSQL or not is_delayed:
        return changed
    return np.where(changes == Change.NEW_KEY, changed + KEY_CHANGE_DELAY_MS, changed)


def sort_keys(
    source: EventSource,
    times: pa.Array | int,
    facts: Mapping[str, pa.Array | Constant],
    increment: pa.Array | Constant = 0,
) -> list[pa.Array | Constant]:
    """The parts of the sort keys of events, of changes as of a backfill.

    times: the source timestamps, milliseconds. facts: the metadata. increment: of the time in the
        log of MongoDB, which is in no other field.
    """
    match source:
        case EventSource.MYSQL:
            return [times, facts["log_file"], facts["log_position"]]
        case EventSource.ORACLE:
            return [times, facts["scn"], facts["rs_id"], facts["ssn"]]
        case EventSource.POSTGRESQL | EventSource.SQLSERVER:
            return [times, _text(facts["lsn"])]
        case EventSource.SALESFORCE:
            return [times]
        case EventSource.MONGODB:
            whole = times // 1000 if isinstance(times, int) else pc.divide(times, 1000)
            return [whole, increment]


def _text(values: pa.Array | Constant) -> pa.Array | Constant:
    """With an empty text instead of null, which a sort key cannot be."""
    if values is None:
        return ""
    return pc.fill_null(values, "") if isinstance(values, pa.Array) else values
