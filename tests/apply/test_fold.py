"""The fold: its net changes mean what the rows mean one after another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.apply.fold import LandedBatch, fold
from mirrorlake.errors import KeyedChangeWithoutKey, MissingBaseRow
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from mirrorlake.model.net_changes import NetChanges
from tests.histories import KEYLESS, Landing, Shape, counted, histories, read_landed, rows_of
from tests.reference import UNCHANGED, Change, Row, Table, identity

INSERT, UPDATE, DELETE, UPSERT = Marker.INSERT, Marker.UPDATE, Marker.DELETE, Marker.UPSERT
SHAPE = Shape.of(["id"], id=types.LONG, name=types.STRING, note=types.STRING)
ROWS: list[Row] = [
    (1, 0.0, "a"),
    (1, -0.0, "a"),
    (1, float("nan"), "a"),
    (1, None, "a"),
    (None, None, None),
    (2, 0.0, ""),
]


def folded(
    shape: Shape, *files: Sequence[tuple[Marker, Row]], truncate: bool = False
) -> NetChanges:
    landed = tuple(tuple(Change(marker, row) for marker, row in file) for file in files)
    return fold_landing(shape, Landing(landed, truncate))


def fold_landing(shape: Shape, landing: Landing) -> NetChanges:
    files = [
        (f"file {number}", read_landed(shape, changes, f"file {number}"))
        for number, changes in enumerate(landing.files, start=1)
    ]
    return fold(LandedBatch("t", shape.schema, shape.key, files, landing.truncate))


def apply_net(rows: list[Row], shape: Shape, net: NetChanges) -> list[Row]:
    """Net changes carried out in the plainest way."""
    keys = [identity(key) for key in rows_of(net.keys)]
    reset = {key for key, goes in zip(keys, net.reset.tolist(), strict=True) if goes}

    def key_of(row: Row) -> Row:
        return identity(tuple(row[index] for index in shape.indexes))

    def base_of(number: int) -> Row:
        (base,) = (row for row in rows if key_of(row) == keys[net.base[number]])
        return base

    left = [] if net.truncate else [row for row in rows if key_of(row) not in reset]
    for number, row in enumerate(rows_of(net.rows)):
        if net.missing is None or not net.missing[number].any():
            left.append(row)
        else:
            missing = net.missing[number].tolist()
            chosen = zip(row, base_of(number), missing, strict=True)
            left.append(tuple(old if gone else new for new, old, gone in chosen))
    return left


def plays(shape: Shape, landings: list[Landing]) -> None:
    """Apply a history both ways, and compare after each batch."""
    table, rows = shape.table(), []
    for landing in landings:
        rows = apply_net(rows, shape, fold_landing(shape, landing))
        if landing.truncate:
            table.truncate()
        table.apply(landing.changes)
        assert counted(rows) == counted(table.rows)


@given(
    st.lists(
        st.lists(st.tuples(st.booleans(), st.sampled_from(ROWS)), max_size=12),
        min_size=1,
        max_size=4,
    )
)
def test_net_changes_of_whole_rows_equal_the_changes_one_by_one(drawn) -> None:
    shape = Shape.of([], a=types.LONG, x=types.DOUBLE, s=types.STRING)
    there: Counter[Row] = Counter()
    for batch in drawn:
        changes = []
        after = Counter(there)
        for wanted, row in batch:
            marker = DELETE if wanted and after[identity(row)] else INSERT
            after[identity(row)] += 1 if marker is INSERT else -1
            changes.append(Change(marker, row))
        files = [("f", read_landed(shape, changes[:5])), ("g", read_landed(shape, changes[5:]))]
        net = fold(LandedBatch("t", shape.schema, shape.schema.names, files, whole_rows=True))
        if net.take is not None:
            keys = [identity(key) for key in rows_of(net.keys)]
            there -= Counter(dict(zip(keys, net.take.tolist(), strict=True)))
        there += Counter(map(identity, rows_of(net.rows)))
        assert there == +after


# -- the same as one by one -------------------------------------------------------------------


@pytest.mark.clause("LZ-109", "LZ-110")
@given(histories())
def test_net_changes_equal_the_changes_one_by_one(history) -> None:
    plays(*history)


@pytest.mark.clause("LZ-110")
@given(histories(batches=1, files=1, rows=20, truncations=False))
def test_a_long_file_equals_its_changes_one_by_one(history) -> None:
    plays(*history)


@given(histories(batches=1, files=4))
def test_several_files_fold_like_one_after_another(history) -> None:
    shape, (landing,) = history
    one_by_one: list[Row] = []
    truncate = landing.truncate
    for file in landing.files:
        one_by_one = apply_net(one_by_one, shape, fold_landing(shape, Landing((file,), truncate)))
        truncate = False
    together = apply_net([], shape, fold_landing(shape, landing))
    assert counted(together) == counted(one_by_one)


@given(histories(truncations=False))
def test_the_first_resulting_row_of_a_reset_key_replaces_the_old_one(
    history,
) -> None:
    shape, landings = history
    for landing in landings:
        net = fold_landing(shape, landing)
        codes = net.code.tolist()
        firsts = [
            code >= 0 and bool(net.reset[code]) and code not in codes[:number]
            for number, code in enumerate(codes)
        ]
        assert net.first.tolist() == firsts


@given(histories())
def test_rows_read_are_counted_by_their_marker(history) -> None:
    shape, landings = history
    for landing in landings:
        operations = fold_landing(shape, landing).operations
        markers = [change.marker for change in landing.changes]
        assert operations == {int(marker): markers.count(marker) for marker in Marker}


# -- what is left of a key --------------------------------------------------------------------


def test_inserts_do_not_change_existing_rows() -> None:
    net = folded(SHAPE, [(INSERT, (1, "a", None)), (INSERT, (1, "b", None))])
    assert net.is_append
    assert [row[1] for row in rows_of(net.rows)] == ["a", "b"]


def test_an_insert_and_a_delete_of_one_key_leave_the_deletion() -> None:
    net = folded(SHAPE, [(INSERT, (1, "a", None)), (DELETE, (1, None, None))])
    assert (net.rows.num_rows, net.reset.tolist()) == (0, [True])


def test_a_batch_without_files_changes_nothing() -> None:
    net = folded(SHAPE)
    assert (net.rows.num_rows, net.is_append) == (0, True)


def test_files_without_rows_change_nothing() -> None:
    net = folded(SHAPE, [], [])
    assert (net.rows.num_rows, net.is_append) == (0, True)


def test_a_truncation_is_not_an_append() -> None:
    assert not folded(SHAPE, truncate=True).is_append


# -- values that were not sent ----------------------------------------------------------------


def test_an_unchanged_value_is_taken_from_the_previous_row_in_the_batch() -> None:
    net = folded(SHAPE, [(UPSERT, (1, "a", "long"))], [(UPDATE, (1, "b", UNCHANGED))])
    assert rows_of(net.rows) == [(1, "b", "long")]
    assert net.missing is None


def test_an_unchanged_value_without_a_previous_row_is_taken_from_the_table() -> None:
    net = folded(SHAPE, [(UPDATE, (1, "b", UNCHANGED))])
    assert net.missing is not None
    assert net.missing.tolist() == [[False, False, True]]
    assert rows_of(net.keys)[net.base[0]] == (1,)


def test_unchanged_values_follow_the_row_through_changes_of_its_key() -> None:
    moves = [
        (UPDATE, (1, "a", UNCHANGED)),
        (DELETE, (1, None, None)),
        (INSERT, (2, UNCHANGED, UNCHANGED)),
        (DELETE, (2, None, None)),
        (INSERT, (3, UNCHANGED, UNCHANGED)),
        (UPDATE, (3, UNCHANGED, UNCHANGED)),
    ]
    left = apply_net([(1, "old", "long"), (7, "x", "y")], SHAPE, folded(SHAPE, moves))
    assert counted(left) == counted([(3, "a", "long"), (7, "x", "y")])


def test_exchanged_keys_keep_their_own_values() -> None:
    swap = [
        (DELETE, (1, None, None)),
        (INSERT, (3, "a", UNCHANGED)),
        (DELETE, (2, None, None)),
        (INSERT, (1, "b", UNCHANGED)),
        (DELETE, (3, None, None)),
        (INSERT, (2, UNCHANGED, UNCHANGED)),
    ]
    left = apply_net([(1, "a", "one"), (2, "b", "two")], SHAPE, folded(SHAPE, swap))
    assert counted(left) == counted([(1, "b", "two"), (2, "a", "one")])


def test_a_row_may_change_its_key_ten_thousand_times_in_a_batch() -> None:
    n = 10_000
    moves = [(DELETE, (0, None, None)), (INSERT, (1, "a", UNCHANGED))]
    for number in range(1, n):
        moves += [(DELETE, (number, None, None)), (INSERT, (number + 1, "a", UNCHANGED))]
    assert apply_net([(0, "x", "long")], SHAPE, folded(SHAPE, moves)) == [(n, "a", "long")]


@pytest.mark.parametrize(
    ("files", "file", "row"),
    [
        # An update of a key that the batch has deleted.
        ([[(DELETE, (1, None, None)), (UPDATE, (1, "a", UNCHANGED))]], "file 1", 2),
        # An insert with nothing before it, behind another change, and behind a file's end.
        ([[(INSERT, (1, "a", UNCHANGED))]], "file 1", 1),
        ([[(UPDATE, (1, "a", "b")), (INSERT, (2, "a", UNCHANGED))]], "file 1", 2),
        ([[(DELETE, (1, None, None))], [(INSERT, (2, "a", UNCHANGED))]], "file 2", 1),
        # A change of a key that the batch has deleted.
        (
            [[(DELETE, (1, None, None))] * 2 + [(INSERT, (2, "a", UNCHANGED))]],
            "file 1",
            3,
        ),
    ],
)
def test_an_unchanged_value_without_an_earlier_row_is_an_error_that_names_its_row(
    files, file: str, row: int
) -> None:
    with pytest.raises(MissingBaseRow) as caught:
        folded(SHAPE, *files)
    assert (caught.value.file, caught.value.row) == (file, row)


def test_an_unchanged_value_of_a_truncated_row_is_an_error() -> None:
    with pytest.raises(MissingBaseRow) as caught:
        folded(SHAPE, [(UPSERT, (2, "a", "b")), (UPDATE, (1, "a", UNCHANGED))], truncate=True)
    assert (caught.value.file, caught.value.row) == ("file 1", 2)


# -- tables without a key ---------------------------------------------------------------------


@pytest.mark.clause("LZ-043")
@pytest.mark.parametrize("marker", [UPDATE, DELETE, UPSERT])
def test_a_change_by_key_of_a_table_without_one_is_an_error_that_names_its_row(marker) -> None:
    with pytest.raises(KeyedChangeWithoutKey) as caught:
        folded(KEYLESS, [(INSERT, (1, "a"))], [(INSERT, (1, "a")), (marker, (1, "a"))])
    assert (caught.value.file, caught.value.row) == ("file 2", 2)


def test_a_table_without_a_key_accepts_only_inserts() -> None:
    table = Table(())
    net = folded(KEYLESS, [(INSERT, (1, "a")), (INSERT, (1, "a"))])
    table.apply([Change(INSERT, (1, "a"))] * 2)
    assert counted(apply_net([], KEYLESS, net)) == counted(table.rows)
