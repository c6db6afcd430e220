"""Which tables, columns and rows are taken."""

from __future__ import annotations

import pytest

from mirrorlake.model.table import TableId
from mirrorlake.sources.selection import Selection, matches

USERS = TableId("public", "users")


@pytest.mark.parametrize(
    ("patterns", "taken"),
    [
        (["*.*"], True),
        (["public.*"], True),
        (["public.users"], True),
        (["Public.users"], False),
        (["other.*"], False),
        (["other.*", "public.u*"], True),
        (["public.*", "!public.users"], False),
        (["!public.audit_*"], True),
        (["!public.users", "public.*"], False),
    ],
)
def test_a_table_is_taken_by_one_pattern_and_refused_by_none(
    patterns: list[str], taken: bool
) -> None:
    assert Selection(tables=tuple(patterns)).takes(USERS) is taken


def test_columns_keep_the_order_of_the_table() -> None:
    selection = Selection(columns={"public.*": ["name", "id"]})
    assert selection.columns_of(USERS, ["id", "secret", "name"]) == ["id", "name"]


def test_the_first_pattern_that_names_the_table_counts() -> None:
    selection = Selection(columns={"public.users": ["id"], "public.*": ["*"]})
    assert selection.columns_of(USERS, ["id", "name"]) == ["id"]


def test_a_table_of_which_nothing_was_said_has_all_its_columns() -> None:
    assert Selection(columns={"other.*": ["id"]}).columns_of(USERS, ["id", "name"]) == [
        "id",
        "name",
    ]


def test_a_condition_belongs_to_the_table_it_names() -> None:
    selection = Selection(rows={"public.users": "id > 1"})
    assert selection.condition_of(USERS) == "id > 1"
    assert selection.condition_of(TableId("public", "others")) is None


def test_no_pattern_takes_everything() -> None:
    assert matches("anything", [])


COLUMNS = {USERS: ["id", "secret"], TableId("public", "orders"): ["id", "total"]}


def test_table_patterns_that_match_nothing_are_told() -> None:
    selection = Selection(tables=("public.*", "publik.*", "!public.users", "!public.usres"))
    assert selection.idle_tables(COLUMNS) == ["publik.*", "!public.usres"]


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"public.users": ["*", "!secret"]}, []),
        ({"public.*": ["*", "!secret"]}, []),  # enough that one of the tables has it
        ({"public.users": ["id"], "public.*": ["*"]}, []),
        (
            {"public.users": ["*", "!scret"]},
            ["!scret in source.columns, public.users, matches none"],
        ),
        ({"public.users": ["total"]}, ["total in source.columns, public.users, matches none"]),
        ({"public.usres": ["*"]}, ["public.usres in source.columns matches no selected table"]),
        (
            {"public.*": ["*"], "public.users": ["*", "!secret"]},
            ["public.users in source.columns matches no selected table that an earlier pattern"],
        ),
    ],
)
def test_words_on_columns_that_concern_nothing_are_told(
    columns: dict[str, list[str]], told: list[str]
) -> None:
    found = list(Selection(columns=columns).idle_columns(COLUMNS))
    assert len(found) == len(told)
    assert all(line.startswith(start) for line, start in zip(found, told, strict=True))


def test_a_pattern_for_columns_to_come_is_a_precaution() -> None:
    selection = Selection(columns={"public.*": ["*", "!token_*"]})
    assert list(selection.idle_columns(COLUMNS)) == []
    assert len(list(selection.idle_columns(COLUMNS, precautions=True))) == 1


def test_a_condition_on_a_table_that_is_not_selected_is_told() -> None:
    selection = Selection(rows={"public.users": "true", "public.usres": "true"})
    assert list(selection.idle_rows(COLUMNS)) == [
        "public.usres in source.rows is not a selected table"
    ]
