"""Masks of unchanged values: packed and unpacked."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.landing.parquet.unchanged import packed, unpacked


@st.composite
def matrices(draw: st.DrawFn) -> np.ndarray:
    rows, columns = draw(st.integers(0, 12)), draw(st.integers(1, 40))
    bits = draw(st.lists(st.booleans(), min_size=rows * columns, max_size=rows * columns))
    return np.array(bits, bool).reshape(rows, columns)


@given(matrices())
def test_a_mask_is_unpacked_as_packed(matrix: np.ndarray) -> None:
    mask = packed(matrix)
    if mask is None:
        assert not matrix.any()
    else:
        assert np.array_equal(unpacked(mask, matrix.shape[1]), matrix)


@given(matrices(), st.data())
def test_a_part_of_a_mask_is_that_part_of_the_matrix(
    matrix: np.ndarray, data: st.DataObject
) -> None:
    mask = packed(matrix)
    if mask is not None:
        start = data.draw(st.integers(0, len(matrix)))
        stop = data.draw(st.integers(start, len(matrix)))
        part = unpacked(mask.slice(start, stop - start), matrix.shape[1])
        assert np.array_equal(part, matrix[start:stop])


def test_the_least_bit_is_the_first_column() -> None:
    row = [True, False, False, False, False, False, False, True, False, True]
    assert packed(np.array([row])).to_pylist() == [b"\x81\x02"]


def test_a_row_without_unchanged_values_has_no_mask() -> None:
    assert packed(np.array([[True], [False]])).to_pylist() == [b"\x01", None]


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (3, 3)])
def test_without_unchanged_values_there_is_no_mask(shape: tuple[int, int]) -> None:
    assert packed(np.zeros(shape, bool)) is None


def test_masks_are_binary() -> None:
    assert packed(np.array([[True], [False]])).type == pa.binary()


def test_rows_without_masks_have_no_unchanged_values() -> None:
    assert not unpacked(pa.nulls(3, pa.binary()), 5).any()
