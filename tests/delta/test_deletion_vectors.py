"""Deletion vectors: what is written can be read, and damage is noticed."""

from __future__ import annotations

import uuid
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.delta import deletion_vectors
from mirrorlake.delta.deletion_vectors import BrokenVector, VectorFile

ROWS = st.sets(st.integers(0, 2**32 - 1) | st.integers(0, 200)).map(
    lambda rows: np.array(sorted(rows), np.int64)
)


def written(folder: Path, *parts: np.ndarray) -> list[dict]:
    """Several vectors in one file; returns their descriptors."""
    file = VectorFile()
    descriptors = [file.add(rows) for rows in parts]
    (folder / file.name).write_bytes(file.content())
    return descriptors


@given(ROWS)
def test_a_bitmap_holds_the_rows_that_were_put_in(rows: np.ndarray) -> None:
    assert deletion_vectors.decode(deletion_vectors.encode(rows)).tolist() == rows.tolist()


def test_runs_of_rows_come_back() -> None:
    rows = np.concatenate((np.arange(1_000, 200_000), np.arange(2**31, 2**31 + 70_000)))
    assert np.array_equal(deletion_vectors.decode(deletion_vectors.encode(rows)), rows)


def test_the_vectors_of_one_file_do_not_run_together(tmp_path: Path) -> None:
    parts = [np.arange(3), np.array([7, 2**32 - 1]), np.zeros(0, np.int64)]
    found = [deletion_vectors.read(tmp_path, one).tolist() for one in written(tmp_path, *parts)]
    assert found == [part.tolist() for part in parts]


@given(st.binary(min_size=16, max_size=16))
def test_the_descriptor_identifies_the_file(raw: bytes) -> None:
    file = VectorFile()
    file._id = uuid.UUID(bytes=raw)
    descriptor = file.add(np.arange(1))
    assert deletion_vectors.path_of(Path("t"), descriptor) == Path("t", file.name)


def test_the_example_of_the_protocol_for_a_relative_path_is_understood() -> None:
    descriptor = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^"}
    name = "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    assert deletion_vectors.path_of(Path("t"), descriptor) == Path("t", "ab", name)


@pytest.mark.parametrize("prefix", ["", "file:", "file://"])
def test_an_absolute_path_may_be_a_url(prefix: str) -> None:
    descriptor = {"storageType": "p", "pathOrInlineDv": f"{prefix}/a%20b/c%25d/v.bin"}
    assert deletion_vectors.path_of(Path("t"), descriptor) == Path("/a b/c%d/v.bin")


def test_an_inline_vector_is_read() -> None:
    descriptor = {
        "storageType": "i",
        "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
        "sizeInBytes": 44,
        "cardinality": 6,
    }
    assert deletion_vectors.read(Path("t"), descriptor).tolist() == [3, 4, 7, 11, 18, 29]


def test_any_damaged_byte_is_noticed(tmp_path: Path) -> None:
    (descriptor,) = written(tmp_path, np.array([1, 5, 70_000]))
    path = deletion_vectors.path_of(tmp_path, descriptor)
    good = path.read_bytes()
    for index in range(1, len(good)):
        path.write_bytes(good[:index] + bytes([good[index] ^ 1]) + good[index + 1 :])
        with pytest.raises(BrokenVector):
            deletion_vectors.read(tmp_path, descriptor)


def test_a_file_that_ends_too_early_is_noticed(tmp_path: Path) -> None:
    (descriptor,) = written(tmp_path, np.array([1, 5, 70_000]))
    path = deletion_vectors.path_of(tmp_path, descriptor)
    good = path.read_bytes()
    for size in range(len(good)):
        path.write_bytes(good[:size])
        with pytest.raises(BrokenVector):
            deletion_vectors.read(tmp_path, descriptor)


def test_a_vector_with_another_number_of_rows_than_the_log_says_is_noticed(tmp_path: Path) -> None:
    (descriptor,) = written(tmp_path, np.array([1, 5]))
    with pytest.raises(BrokenVector, match="2 rows, but the log says 3"):
        deletion_vectors.read(tmp_path, descriptor | {"cardinality": 3})


def test_an_unknown_bitmap_is_refused() -> None:
    with pytest.raises(BrokenVector):
        deletion_vectors.decode(b"\0" * 12)


def test_rows_beyond_the_largest_file_are_refused() -> None:
    raw = bytearray(deletion_vectors.encode(np.arange(2)))
    raw[12] = 1  # the upper half of the row numbers
    with pytest.raises(BrokenVector):
        deletion_vectors.decode(bytes(raw))
