"""Which files make the next batch."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.errors import MissingFile
from mirrorlake.landing.parquet.reader import Inspected
from mirrorlake.mirror.batch import batch_of, run_of
from mirrorlake.mirror.batch_limits import BatchLimits
from tests.mirror.planning import backfill, changes, foreign, landed, load, truncation

LIMITS = BatchLimits()


def run(found: Sequence[int], recorded: int = 0, target: int | None = None) -> list[int]:
    files = [landed(number) for number in found]
    return [file.number for file in run_of("t", files, recorded, target, LIMITS).files]


def gap(found: Sequence[int], recorded: int = 0, target: int | None = None) -> str | None:
    files = [landed(number) for number in found]
    error = run_of("t", files, recorded, target, LIMITS).error
    assert error is None or isinstance(error, MissingFile)
    return error and error.what


def batch(found: Sequence[Inspected], limits: BatchLimits = LIMITS) -> int:
    """How many of the files make the batch."""
    files = [landed(number) for number, _facts in enumerate(found, start=1)]
    facts = {file.path: one for file, one in zip(files, found, strict=True)}
    chosen = batch_of(files, facts, limits)
    assert list(chosen) == files[: len(chosen)]
    return len(chosen)


class TestRun:
    @pytest.mark.clause("LZ-118")
    def test_a_run_begins_after_the_recorded_number(self) -> None:
        assert run([1, 2, 3, 4], recorded=2) == [3, 4]

    @pytest.mark.clause("LZ-117")
    def test_a_gap_blocks_all_later_files(self) -> None:
        assert run([1, 2, 4, 5]) == [1, 2]
        assert gap([1, 2, 4, 5]) == "file 3 is missing, 4 to 5 are waiting"

    @pytest.mark.clause("LZ-117")
    def test_a_gap_that_is_filled_blocks_nothing(self) -> None:
        assert (run([1, 2, 3, 4]), gap([1, 2, 3, 4])) == ([1, 2, 3, 4], None)

    @pytest.mark.clause("LZ-119")
    def test_the_first_file_is_number_one(self) -> None:
        assert (run([2, 3]), gap([2])) == ([], "file 1 is missing, 2 is waiting")

    def test_a_gap_at_the_recorded_number_blocks_too(self) -> None:
        assert (run([3, 5], recorded=3), gap([3, 5], recorded=3)) == (
            [],
            "file 4 is missing, 5 is waiting",
        )

    def test_a_gap_before_the_recorded_number_does_not_matter(self) -> None:
        assert (run([1, 3, 4], recorded=3), gap([1, 3, 4], recorded=3)) == ([4], None)

    def test_a_very_large_number_is_a_gap_like_any_other(self) -> None:
        assert gap([1, 10**20 - 1]) == f"file 2 is missing, {10**20 - 1} is waiting"

    def test_without_files_there_is_nothing_to_do(self) -> None:
        assert (run([]), gap([])) == ([], None)

    def test_with_everything_recorded_there_is_nothing_to_do(self) -> None:
        assert (run([3], recorded=3), gap([3], recorded=3)) == ([], None)

    def test_a_run_ends_at_the_target_of_the_cut(self) -> None:
        assert run([1, 2, 3, 4], target=3) == [1, 2, 3]

    def test_a_gap_beyond_the_target_does_not_matter_yet(self) -> None:
        assert (run([1, 2, 4], target=2), gap([1, 2, 4], target=2)) == ([1, 2], None)

    def test_a_target_that_is_not_landed_yet_is_not_a_gap(self) -> None:
        assert (run([1, 2], target=5), gap([1, 2], target=5)) == ([1, 2], None)

    def test_a_target_that_was_passed_needs_no_files(self) -> None:
        assert run([1, 2, 3, 4], recorded=3, target=2) == []

    def test_a_run_has_a_greatest_length(self) -> None:
        files = [landed(number) for number in range(1, 10)]
        found = run_of("t", files, 0, None, BatchLimits(files=4))
        assert (len(found.files), found.error) == (4, None)

    @given(st.sets(st.integers(1, 12)), st.integers(0, 12), st.none() | st.integers(0, 14))
    def test_a_run_never_skips_a_number(
        self, found: set[int], recorded: int, target: int | None
    ) -> None:
        chosen = run(sorted(found), recorded, target)
        assert chosen == list(range(recorded + 1, recorded + 1 + len(chosen)))
        following = recorded + len(chosen) + 1
        assert following not in found or (target is not None and following > target)


class TestBatch:
    @pytest.mark.clause("LZ-129")
    def test_several_files_make_one_batch(self) -> None:
        assert batch([changes(), changes(), foreign()]) == 3

    def test_a_batch_ends_where_a_transaction_ends(self) -> None:
        assert batch([changes(), changes(complete=False), changes(complete=False)]) == 1

    def test_a_transaction_that_is_not_complete_waits(self) -> None:
        assert batch([changes(complete=False)]) == 0

    def test_a_transaction_over_several_files_is_applied_when_it_is_complete(self) -> None:
        assert batch([changes(complete=False), changes(complete=False), changes()]) == 3

    def test_files_of_others_are_complete(self) -> None:
        assert batch([foreign()]) == 1

    @pytest.mark.parametrize("limits", [BatchLimits(rows=10), BatchLimits(size=1_000)])
    def test_a_batch_has_a_greatest_size(self, limits: BatchLimits) -> None:
        assert batch([changes(rows=4), changes(rows=4), changes(rows=4)], limits) == 2

    def test_a_file_that_is_too_large_alone_is_a_batch(self) -> None:
        assert batch([changes(rows=50), changes()], BatchLimits(rows=10)) == 1

    def test_a_batch_that_is_full_ends_with_the_last_whole_transaction(self) -> None:
        found = [changes(rows=4), changes(rows=4, complete=False), changes(rows=4)]
        assert batch(found, BatchLimits(rows=10)) == 1

    def test_a_transaction_larger_than_a_batch_is_applied_in_parts(self) -> None:
        found = [changes(rows=4, complete=False)] * 3 + [changes(rows=4)]
        assert batch(found, BatchLimits(rows=10)) == 2

    def test_a_transaction_of_more_files_than_a_batch_is_applied_in_parts(self) -> None:
        found = [changes(complete=False)] * 4
        assert batch(found, BatchLimits(files=4)) == 4

    def test_files_of_a_load_and_of_changes_do_not_mix(self) -> None:
        assert batch([load(complete=False), load(), changes()]) == 2

    def test_changes_end_where_a_load_begins(self) -> None:
        assert batch([changes(), load()]) == 1

    def test_each_file_of_a_backfill_is_a_batch(self) -> None:
        assert batch([changes(), backfill(), changes()]) == 1
        assert batch([backfill(), backfill(), changes()]) == 1
        assert batch([load(complete=False), backfill()]) == 1

    def test_a_load_may_be_applied_before_it_is_complete(self) -> None:
        assert batch([load(complete=False)]) == 1

    def test_a_truncation_is_in_a_batch_with_changes(self) -> None:
        assert batch([changes(), truncation(), changes()]) == 3

    def test_an_empty_run_makes_no_batch(self) -> None:
        assert batch([]) == 0

    @given(
        st.lists(st.builds(load, complete=st.booleans(), rows=st.integers(0, 9)), max_size=4),
        st.lists(st.builds(changes, complete=st.booleans(), rows=st.integers(0, 9)), max_size=9),
        st.integers(1, 20),
        st.integers(1, 12),
    )
    def test_batch_after_batch_everything_complete_is_applied(
        self, loads: list[Inspected], later: list[Inspected], rows: int, files: int
    ) -> None:
        """Whatever the limits, only a transaction that is not complete is left to wait."""
        limits, left = BatchLimits(rows=rows, files=files), loads + later
        while size := batch(left[:files], limits):
            left = left[size:]
        assert not any(found.footer.complete for found in left if found.footer)
