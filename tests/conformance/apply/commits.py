"""Commits: each batch once, with what it records."""

from __future__ import annotations

import json

from mirrorlake.delta.log.history import CommittedBatch
from mirrorlake.mirror.engine import Conflicted, Counts
from mirrorlake.model.applied import FileRows, Totals
from tests.conformance.apply.scenario import (
    ORDERS,
    Played,
    Restarts,
    Scenario,
    delete,
    insert,
    lands,
    update,
    upsert,
)

ONE, TWO = insert(1, "a", "x"), insert(2, "b", "y")


def last_batch(played: Played) -> CommittedBatch:
    """As another engine reads it from the table."""
    assert played.progress.batch is not None
    return played.progress.batch


def says_which_files_and_positions_it_holds(played: Played) -> None:
    said = played.table.reader.commit(played.table.path, played.applied.version)["userMetadata"]
    assert json.loads(said) == {
        "mirrorlake": 1,
        "files": [1, 2],
        "on": played.applied.version - 1,
        "positions": ["0/10:1", "0/20:3"],
        "cut": 7,
        "rows": {"insert": 1, "update": 0, "delete": 0},
        "read": [[1, 1, 1, 0, 0, 0], [2, 2, 0, 1, 0, 0]],
        "total": {"insert": 1, "update": 0, "delete": 0, "duplicates": 0, "bytes": 99},
    }


def says_what_each_file_held(played: Played) -> None:
    assert last_batch(played).files == (
        FileRows(1, 1, (1, 0, 0, 1)),
        FileRows(2, 2, (0, 0, 1, 0)),
        FileRows(3, 3, (0, 0, 0, 0)),
    )


def has_not_read_the_first_file(played: Played) -> None:
    assert last_batch(played).files == (FileRows(1, 1, None), FileRows(2, 2, (1, 0, 0, 0)))


def has_counted_all_batches(played: Played) -> None:
    assert last_batch(played).total == Totals(insert=4, update=1, delete=1, bytes=15)
    assert last_batch(played).total.rows == 6


def has_counted_duplicates(played: Played) -> None:
    assert (last_batch(played).duplicates, last_batch(played).total.duplicates) == (3, 3)


COMMITS = [
    # Of every scenario: another engine knows what was applied, and does not apply it again.
    Scenario(
        "rows and number are one commit, which every engine reads",
        ["LZ-258", "CF-150", "CF-153"],
        ORDERS,
        [lands([ONE], [TWO])],
        rows=[(1, "a", "x"), (2, "b", "y")],
        version=1,
    ),
    *(
        Scenario(
            f"a batch that leaves {what} is refused",
            [],
            ORDERS,
            [lands([ONE]), lands([ONE], [TWO], first=first, outcome=Conflicted)],
            rows=[(1, "a", "x")],
        )
        for what, first in (("no file out, but repeats one", 1), ("a file out", 3))
    ),
    Scenario(
        "a batch without net change records its number",
        ["CF-151"],
        ORDERS,
        [lands([ONE, delete(1, None, None)], feed={})],
        rows=[],
    ),
    Scenario("a file without rows is applied", ["LZ-141"], ORDERS, [lands([])], rows=[]),
    Scenario(
        "a truncation alone is applied",
        [],
        ORDERS,
        [lands([ONE]), lands(truncated=True, counts=Counts(delete=1))],
        rows=[],
    ),
    Scenario(
        "rows are counted by what became of them",
        [],
        ORDERS,
        [
            lands([insert(n, "a", "x") for n in range(4)]),
            lands(
                [
                    *(insert(9, "b", ""), upsert(8, "b", ""), update(7, "b", "")),
                    *(update(0, "b", ""), upsert(1, "b", "")),
                    *(delete(2, "", ""), delete(6, "", "")),
                ],
                counts=Counts(insert=3, update=2, delete=1),
            ),
        ],
        rows=[(3, "a", "x"), *((n, "b", "") for n in (0, 1, 7, 8, 9))],
    ),
    Scenario(
        "the commit says which files and positions it holds",
        ["CF-055"],
        ORDERS,
        [
            lands(
                [ONE],
                [update(1, "b", "y")],
                positions=("0/10:1", "0/20:3"),
                cut=7,
                landed_bytes=99,
            )
        ],
        rows=[(1, "b", "y")],
        then=says_which_files_and_positions_it_holds,
    ),
    Scenario(
        "the commit says what each file held",
        [],
        ORDERS,
        [lands([ONE, upsert(2, "a", "x")], [delete(1, "", "")], [])],
        rows=[(2, "a", "x")],
        then=says_what_each_file_held,
    ),
    Scenario(
        "files before a truncation are not read",
        [],
        ORDERS,
        [lands([TWO], truncated=True)],
        rows=[(2, "b", "y")],
        then=has_not_read_the_first_file,
    ),
    Scenario(
        "totals go on in another engine",
        ["LZ-266"],
        ORDERS,
        [
            lands([insert(n, "a", "x") for n in range(4)], landed_bytes=10),
            Restarts(),
            lands([update(0, "b", ""), delete(1, "", "")], landed_bytes=5),
        ],
        rows=[(0, "b", ""), (2, "a", "x"), (3, "a", "x")],
        then=has_counted_all_batches,
    ),
    Scenario(
        "rows that had one key are counted",
        ["LZ-088", "LZ-089"],
        ORDERS,
        [
            lands([insert(n, "a", "x") for n in (1, 1, 1, 2, 2)]),
            lands([delete(1, "", ""), update(2, "b", "")]),
        ],
        rows=[(2, "b", "")],
        then=has_counted_duplicates,
    ),
]
