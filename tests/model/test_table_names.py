"""How names of tables are printed and read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.errors import UsageError
from mirrorlake.model.table import TableId, is_printed, named, of_table, printed

PARTS = st.text(st.sampled_from('ab."\n_') | st.characters(), max_size=6)
TABLES = st.builds(TableId, PARTS, PARTS)


@given(TABLES)
def test_a_printed_name_is_read_as_the_same_table(table: TableId) -> None:
    assert TableId.parse(str(table)) == table
    assert is_printed(str(table))
    assert printed(str(table)) == str(table)


@given(TABLES, TABLES)
def test_two_tables_are_never_printed_alike(one: TableId, other: TableId) -> None:
    assert (one == other) == (str(one) == str(other))


@given(st.text(st.sampled_from('ab."')))
def test_every_text_is_read(text: str) -> None:
    if not text.startswith("."):  # no schema, as without the dot
        assert is_printed(text) == (str(TableId.parse(text)) == text)


@pytest.mark.parametrize(
    ("table", "text"),
    [
        (TableId("public", "orders"), "public.orders"),
        (TableId("", "orders"), "orders"),
        (TableId("public", "v1.0"), 'public."v1.0"'),
        (TableId("xx.y", "z"), '"xx.y".z'),
        (TableId("public", 'a"b'), 'public."a""b"'),
        (TableId("Pub lic", "Orders, alle"), "Pub lic.Orders, alle"),
    ],
)
def test_only_parts_with_dots_and_quotes_are_in_quotes(table: TableId, text: str) -> None:
    assert str(table) == text


def test_a_text_with_more_dots_is_read_as_in_earlier_releases() -> None:
    assert TableId.parse("xx.y.z") == TableId("xx.y", "z")
    assert TableId.parse('"public"."orders"') == TableId("public", "orders")


def test_a_table_is_found_without_its_quotes_as_long_as_it_is_the_only_one() -> None:
    one, other, plain = 'xx."y.z"', '"xx.y".z', "xx.y"
    assert named("xx.y.z", [one, plain], where="here") == one
    assert named("xx.y.z", [other, plain], where="here") == other
    assert named('"xx"."y"', [one, plain], where="here") == plain
    assert named("unknown.a.b", [one, plain], where="here") == "unknown.a.b"
    for exact in (one, other, plain):
        assert named(exact, [one, other, plain], where="here") == exact
    with pytest.raises(UsageError, match=r'may be "xx.y".z or xx."y.z"') as error:
        named("xx.y.z", [one, other], where="here")
    assert "quotes" in error.value.hint


def test_settings_name_a_table_with_or_without_its_quotes() -> None:
    table = TableId("public", "v1.0")
    assert of_table({"public.v1.0": 1}, table) == 1
    assert of_table({"public.v1.0": 1, 'public."v1.0"': 2}, table) == 2
    assert of_table({"public.v1": 1}, table) is None
