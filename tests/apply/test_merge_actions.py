"""Acts against the rows that are there: a `MERGE` by the book, in plain words, equals the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

from mirrorlake.apply.fold import LandedBatch, fold
from mirrorlake.apply.merge_actions import inserts_of, merge_actions
from mirrorlake.delta.write.rewrite import NoBaseRow
from mirrorlake.mirror.engine import Counts
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from mirrorlake.model.net_changes import NetChanges
from tests.doubles.handmade_merge import merged
from tests.histories import Landing, Shape, counted, histories, read_landed, rows_of
from tests.reference import UNCHANGED, Change, Row, identity, plain

ORDERS = Shape.of(["id"], id=types.LONG, name=types.STRING)


def folded(shape: Shape, landing: Landing) -> NetChanges:
    files = [(f"f{n}", read_landed(shape, changes)) for n, changes in enumerate(landing.files)]
    return fold(LandedBatch("t", shape.schema, shape.key, files, landing.truncate))


def looked_up(shape: Shape, net: NetChanges, rows: Sequence[Row]) -> tuple[np.ndarray, pa.Table]:
    """The rows that have a key which is reset, and the number of that key."""
    keys = [identity(key) for key in rows_of(net.keys)]
    wanted = {key: code for code, key in enumerate(keys) if net.reset[code]}
    held = [(wanted.get(identity(tuple(row[p] for p in shape.indexes))), row) for row in rows]
    found = [(code, row) for code, row in held if code is not None]
    return np.array([code for code, _row in found], np.int64), shape.arrow(r for _c, r in found)


@pytest.mark.clause("LZ-077", "LZ-089", "LZ-110", "LZ-130", "LZ-256", "LZ-257")
@settings(suppress_health_check=list(HealthCheck))
@given(history=histories(batches=4))
def test_merging_the_actions_gives_rows_and_feed_of_the_model(history) -> None:
    shape, landings = history
    model, rows = shape.table(), []
    for landing in landings:
        expected = model.truncate() if landing.truncate else Counter()
        expected += model.apply(landing.changes)
        net = folded(shape, landing)
        if landing.truncate or net.is_append:
            actions = inserts_of(net, gone=len(rows) if landing.truncate else 0)
        else:
            code, found = looked_up(shape, net, rows)
            actions = merge_actions(net, code, found if net.missing is not None else None)
        source = list(zip(actions.action.tolist(), rows_of(actions.rows), strict=True))
        rows, images = merged(shape.indexes, source, rows, truncate=landing.truncate)
        feed = Counter((kind, plain(row)) for kind, row in images)
        assert counted(rows) == counted(model.rows)
        assert feed == expected
        kinds = Counter(kind for kind, _row in feed.elements())
        assert (actions.counts.insert, actions.counts.delete) == (kinds["insert"], kinds["delete"])
        assert actions.counts.update == kinds["update_postimage"]


def test_rows_beyond_the_first_of_a_key_are_counted() -> None:
    changes = (Change(Marker.DELETE, (1, None)), Change(Marker.UPDATE, (2, "new")))
    net = folded(ORDERS, Landing((changes,)))
    codes = {key: code for code, (key,) in enumerate(rows_of(net.keys))}
    actions = merge_actions(net, np.array([codes[1]] * 3 + [codes[2]] * 2))
    assert actions.counts == Counts(insert=1, delete=5, duplicates=3)


def test_an_unchanged_value_needs_a_row_of_the_table() -> None:
    net = folded(ORDERS, Landing(((Change(Marker.UPDATE, (1, UNCHANGED)),),)))
    with pytest.raises(NoBaseRow):
        merge_actions(net, np.zeros(0, np.int64), ORDERS.arrow([]))
