"""What Delta's commands are told: files stay few and alive in each partition, at a bounded cost."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.mirror.compaction.optimize import MOST_PARTITIONS, Join, Purge, choose
from mirrorlake.mirror.compaction.small_files import (
    CLASSES,
    DEAD,
    FANOUT,
    MOST_BYTES,
    MOST_ROWS,
)

BYTES_PER_ROW = 40
_numbers = itertools.count(1)


def add(
    rows: int,
    gone: int = 0,
    size: int | None = None,
    index: str | None = "",
    *,
    merged: bool = False,
) -> Any:
    action: dict[str, Any] = {
        "path": f"f{next(_numbers)}",
        "size": rows * BYTES_PER_ROW if size is None else size,
        "stats": json.dumps({"numRecords": rows}),
        "partitionValues": {} if index == "" else {"p": index},
    }
    if merged:
        action["merged"] = True  # it has the kind of change, which the log does not tell
    if gone:
        action["deletionVector"] = {"cardinality": gone}
    return action


def facts(action: Any) -> tuple[int, int, int]:
    """Bytes, rows, and how many of these are gone."""
    gone = action.get("deletionVector", {}).get("cardinality", 0)
    return action["size"], json.loads(action["stats"])["numRecords"], gone


def left(files: Sequence[Any]) -> int:
    return sum(rows - gone for _size, rows, gone in map(facts, files))


def live_bytes(files: Sequence[Any]) -> int:
    return sum(size * (rows - gone) // rows for size, rows, gone in map(facts, files))


# -- Delta, as OptimizeExecutor of 4.4 does it ----------------------------------------------------


def taken(files: Sequence[Any], command: Join | Purge) -> list[Any]:
    return [
        file
        for file in files
        if tuple(file["partitionValues"].items()) in command.rewrite.partitions
        and is_taken(file, command)
    ]


def is_taken(file: Any, command: Join | Purge) -> bool:
    size, rows, gone = facts(file)
    if isinstance(command, Purge):
        return gone > 0 or "merged" in file
    return size < command.below or 1.0 - (rows - gone) / rows > command.dead


def bins(files: Sequence[Any], most: int) -> Iterator[list[Any]]:
    """The smallest first, each bin as long as the next file fits."""
    current: list[Any] = []
    for file in sorted(files, key=lambda file: file["size"]):
        if sum(one["size"] for one in current) + file["size"] > most:
            yield current
            current = []
        current.append(file)
    yield current


def carried_out(files: Sequence[Any], command: Join | Purge) -> list[Any]:
    """The files afterwards; the same when nothing would be committed."""
    indexes: dict[Any, list[Any]] = {}
    for file in taken(files, command):
        indexes.setdefault(file["partitionValues"].get("p", ""), []).append(file)
    gone, new = list[Any](), list[Any]()
    for index, some in indexes.items():
        for one in bins(some, command.rewrite.bytes):
            if len(one) > 1 or (one and isinstance(command, Purge)):
                gone += one
                if left(one):
                    new.append(add(left(one), size=live_bytes(one), index=index))
    return [file for file in files if file not in gone] + new if new else list(files)


# -- many files -----------------------------------------------------------------------------------


def test_few_small_files_are_not_compacted() -> None:
    assert choose([add(100) for _ in range(FANOUT - 1)]) is None
    scattered = [add(100, index=str(n % 9)) for n in range(9 * (FANOUT - 1))]
    assert choose(scattered) is None


def test_enough_files_of_one_class_are_joined_and_no_others() -> None:
    small, large = [add(100, size=n) for n in range(1, FANOUT + 1)], add(1_000_000)
    command = choose([large, *small])
    assert isinstance(command, Join)
    assert taken([large, *small], command) == small
    assert command.rewrite.rows == FANOUT * 100


def test_partitions_with_few_files_are_not_compacted() -> None:
    many = [add(100, index=index) for index in ("a", None) for _ in range(FANOUT)]
    few = [add(100, index="b") for _ in range(2)]
    command = choose([*few, *many])
    assert isinstance(command, Join)
    assert set(command.rewrite.partitions) == {(("p", "a"),), (("p", None),)}


def test_a_command_has_a_maximum_number_of_partitions() -> None:
    indexes = range(MOST_PARTITIONS + 1)
    command = choose([add(10, index=f"{n}") for n in indexes for _ in range(FANOUT)])
    assert isinstance(command, Join)
    assert len(command.rewrite.partitions) == MOST_PARTITIONS


def test_full_files_are_not_joined_however_few_bytes_they_have() -> None:
    full = [add(2_000_000, size=9 << 20) for _ in range(FANOUT)]
    assert choose(full) is None
    elsewhere = [add(100, size=5 << 20, index="b") for _ in range(FANOUT)]
    files = [*full, *(add(100, size=5 << 20) for _ in range(FANOUT)), *elsewhere]
    files = [*files, add(1_500_000, size=6 << 20)]
    while command := choose(files):
        assert not {1_500_000, 2_000_000} & {facts(file)[1] for file in taken(files, command)}
        files = carried_out(files, command)
    assert len(files) == FANOUT + 3


def test_files_without_statistics_are_joined_by_size() -> None:
    def foreign(count: int, size: int) -> list[Any]:
        return [{"path": f"p{n}", "size": size + n, "stats": None} for n in range(count)]

    command = choose(foreign(FANOUT, 10))
    assert isinstance(command, Join)
    assert command.below == CLASSES[0]
    command = choose(foreign(100, 60 << 20))
    assert isinstance(command, Join)
    assert command.below == (60 << 20) + MOST_BYTES // (60 << 20)


def test_files_of_equal_size_are_joined_together_or_not_at_all() -> None:
    alike = [add(10, size=50 << 20) for _ in range(FANOUT)]
    assert choose(alike) is None
    small = [add(10, size=49 << 20) for _ in range(2)]
    command = choose([*small, *alike])
    assert isinstance(command, Join)
    assert taken([*small, *alike], command) == small


# -- dead rows ------------------------------------------------------------------------------------


def worn(rows: int = 1_000_000, share: float = 0.5, **more: Any) -> Any:
    return add(rows, gone=int(rows * share), **more)


def test_a_single_file_is_purged_only_above_the_share_of_deleted_rows() -> None:
    assert choose([worn(share=DEAD)]) is None
    assert isinstance(choose([worn(share=DEAD + 0.01)]), Purge)
    assert choose([worn(100, share=0.9)]) is None


def test_only_files_with_many_deleted_rows_are_joined() -> None:
    many = [worn(share=share) for share in (0.6, 0.61, 0.62)]
    files = [worn(share=0.2), *many, add(1_000_000), worn(share=0.1)]
    command = choose(files)
    assert isinstance(command, Join)
    assert taken(files, command) == many


def test_a_file_with_many_deleted_rows_is_joined_with_a_small_file() -> None:
    large = [worn(1_900_000, share=0.2, size=n << 20) for n in range(200, 210)]
    files = [*large, worst := worn(), small := add(10)]
    command = choose(files)
    assert isinstance(command, Join)
    assert taken(files, command) == [worst, small]


def test_files_that_exceed_a_step_are_not_compacted() -> None:
    large = [worn(1_900_000, share=0.2, size=n << 20) for n in range(200, 210)]
    assert choose([*large, worn(1_900_000, size=199 << 20)]) is None
    assert choose([worn(5_000_000)]) is None


def test_files_are_not_purged_together_with_more_than_a_step() -> None:
    others = [add(1_500_000, size=n << 20, merged=True) for n in range(200, 202)]
    files = [*others, worn(1_900_000, size=199 << 20)]
    assert choose(files) is None
    assert isinstance(choose(files[2:]), Purge)


# -- over time ------------------------------------------------------------------------------------

FILES = st.lists(
    st.tuples(
        st.integers(1, 3_000_000),
        st.sampled_from([0.0, 0.1, 0.29, 0.5, 0.9, 1.0]),
        st.integers(1, 200),
        st.sampled_from(["a", "b", None]),
        st.booleans(),
    ),
    max_size=60,
)


@given(drawn=FILES)
def test_steps_are_bounded_and_come_to_an_end(drawn: list[Any]) -> None:
    files = [
        add(rows, int(rows * gone), rows * size + size % 7, index, merged=merged)
        for rows, gone, size, index, merged in drawn
    ]
    for _ in range(2 * len(files) + 1):
        command = choose(files)
        if command is None:
            break
        some = taken(files, command)
        assert left(some) <= command.rewrite.rows <= MOST_ROWS
        assert live_bytes(some) <= MOST_BYTES
        after = carried_out(files, command)
        assert after != files, "nothing came of it"
        assert left(after) == left(files)
        files = after
    assert choose(files) is None
    for index in ("a", "b", None):
        check([file for file in files if file["partitionValues"]["p"] == index])


def check(files: Sequence[Any]) -> None:
    """What is promised of a partition."""
    known = list(map(facts, files))
    full = [size for size, rows, gone in known if rows - gone >= MOST_ROWS // 2]
    for floor, bound in itertools.pairwise((0, *CLASSES)):
        top = min([bound, *(size for size in full if size >= CLASSES[0])])
        alike = [file for file in files if floor <= facts(file)[0] < top]
        assert len(alike) < FANOUT or not left(alike)
    if left(files) <= MOST_ROWS and live_bytes(files) <= MOST_BYTES:
        for size, rows, gone in known:
            assert size < CLASSES[0] or gone <= DEAD * rows or gone == rows


def test_over_many_batches_files_stay_few_in_each_partition() -> None:
    random, files = Random(1), list[Any]()
    written = 0
    for _ in range(3_000):
        files += [add(random.randint(1, 300), index=index) for index in ("a", "b", None)]
        if command := choose(files):
            written += command.rewrite.rows
            files = carried_out(files, command)
        indexes = Counter(file["partitionValues"]["p"] for file in files)
        assert max(indexes.values()) <= FANOUT * (len(CLASSES) + 1)
    assert written < 100 * left(files)
