"""Folder names for names from outside."""

from __future__ import annotations

import unicodedata
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mirrorlake.landing.names import LONGEST, folder_name
from mirrorlake.storage.store import checked

AWKWARD = "aAßſKıİΣςÄä_. %/\\~\n\x7f\x85"
names = st.text(min_size=1, max_size=30) | st.text(AWKWARD, min_size=1, max_size=12)
long_names = st.text(min_size=150, max_size=400) | st.text("é%_", min_size=150, max_size=400)
any_names = names | long_names


def twins_of(name: str) -> st.SearchStrategy[str]:
    """Names that equal `name` but for case."""
    letters = [
        st.sampled_from(sorted({c, c.lower(), c.upper(), c.swapcase(), c.casefold()})) for c in name
    ]
    return st.tuples(*letters).map("".join).filter(lambda twin: twin.casefold() == name.casefold())


@given(any_names)
@example(".")
@example("..")
@example("_")
@example("x.schema")
@example("X.SCHEMA")
@example(".schema")
@example("a.schema.")
def test_the_folder_is_safe(name: str) -> None:
    folder = folder_name(name)
    assert checked(folder) == [folder]
    assert folder[0] not in "_."
    assert folder[-1] not in ". "
    assert not folder.lower().endswith(".schema")
    assert not any(unicodedata.category(letter) == "Cc" for letter in folder)


@given(any_names)
@example("é" * 100 + "%")
def test_the_folder_is_not_too_long(name: str) -> None:
    assert len(folder_name(name).encode()) <= LONGEST


@given(names)
def test_a_name_can_be_read_from_its_folder(name: str) -> None:
    assert unquote(folder_name(name), errors="strict") == name


@given(any_names, any_names)
@example("a/b", "a%2Fb")
@example("_a", "%5Fa")
def test_different_names_have_different_folders(one: str, other: str) -> None:
    assert (folder_name(one) == folder_name(other)) == (one == other)


@given(long_names, st.characters(exclude_categories=["Cs"]))
def test_long_names_that_end_differently_have_different_folders(name: str, end: str) -> None:
    assert folder_name(name + end) != folder_name(name)


@given(names.flatmap(lambda name: st.tuples(st.just(name), twins_of(name))))
@example(("Orders", "orders"))
@example(("xÄ", "xä"))
@example(("A/b", "a/b"))
@example(("_A", "_a"))
@example(("straße", "strasse"))
@example(("T.SCHEMA", "T.schema"))
def test_names_that_differ_in_case_have_different_folders(twins: tuple[str, str]) -> None:
    one, other = twins
    apart = frozenset({one.casefold()})
    folders = {folder_name(name, apart_from=apart).casefold() for name in twins}
    assert len(folders) == (1 if one == other else 2)


@given(names, names)
def test_an_encoded_name_equals_no_other_name(name: str, other: str) -> None:
    apart = folder_name(name, apart_from=frozenset({name.casefold()}))
    if other != name:
        assert apart.casefold() != folder_name(other).casefold()


@given(long_names)
def test_an_encoded_name_is_not_too_long(name: str) -> None:
    apart = folder_name(name, apart_from=frozenset({name.casefold()}))
    assert len(apart.encode()) <= LONGEST


@pytest.mark.clause("LZ-006")
@pytest.mark.parametrize("name", ["orders", "Order Lines", "größe", "a.b", "2026", "x.schema.y"])
def test_an_ordinary_name_is_its_own_folder(name: str) -> None:
    assert folder_name(name) == name


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("_tmp", "%5Ftmp"),
        ("a/b", "a%2Fb"),
        ("50%", "50%25"),
        ("x.schema", "x%2Eschema"),
        (".hidden", "%2Ehidden"),
        ("end.", "end%2E"),
        ("line\nbreak", "line%0Abreak"),
    ],
)
def test_characters_that_a_folder_cannot_have_are_percent_encoded(name: str, folder: str) -> None:
    assert folder_name(name) == folder


def test_a_table_needs_a_name() -> None:
    with pytest.raises(ValueError, match="must have a name"):
        folder_name("", apart_from=frozenset({""}))
