"""The include and exclude lists of a stream, as the selection of its mirror."""

from __future__ import annotations

from typing import Any

import pytest

from mirrorlake.app.streams.included import selection, tables_of
from mirrorlake.control.shapes.hierarchies import PostgresqlRdbms
from mirrorlake.model.table import TableId

SECRETS = {"postgresqlColumns": [{"column": "secret"}]}
NAMES = ["id", "secret", "note"]


def rdbms(*schemas: tuple[str, list[Any]]) -> PostgresqlRdbms:
    return PostgresqlRdbms.model_validate(
        {"postgresqlSchemas": [{"schema": name, "postgresqlTables": t} for name, t in schemas]}
    )


def table(name: str, *columns: str) -> dict[str, Any]:
    return {"table": name, "postgresqlColumns": [{"column": one} for one in columns]}


@pytest.mark.clause("ST-312")
@pytest.mark.parametrize(
    ("include", "exclude", "orders", "users"),
    [
        (
            rdbms(("shop", [table("orders", "id", "secret")])),
            rdbms(("shop", [SECRETS])),
            ["id"],
            None,
        ),
        (
            rdbms(("shop", [table("orders", "id", "secret"), table("users")])),
            rdbms(("shop", [SECRETS])),
            ["id"],
            ["id", "note"],
        ),
        (
            rdbms(("shop", [table("orders", "id"), table("orders", "note")])),
            None,
            ["id", "note"],
            None,
        ),
        (
            rdbms(("", [table("", "id", "secret")])),
            rdbms(("shop", [table("orders", "secret")])),
            ["id"],
            ["id", "secret"],
        ),
        (None, rdbms(("shop", [table("users")])), NAMES, None),
        (rdbms(("shop", [])), rdbms(("shop", [table("users", "note")])), NAMES, ["id", "secret"]),
    ],
)
def test_a_column_counts_wherever_it_is_listed(
    include: Any, exclude: Any, orders: Any, users: Any
) -> None:
    chosen = selection(include, exclude)

    def columns(name: str) -> list[str] | None:
        found = TableId("shop", name)
        return chosen.columns_of(found, NAMES) if chosen.takes(found) else None

    assert columns("orders") == orders
    assert columns("users") == users
    there = {TableId("shop", name): NAMES for name in ("orders", "users")}
    selected = {one: names for one, names in there.items() if chosen.takes(one)}
    assert list(chosen.idle_columns(selected)) == []


def test_an_excluded_column_of_no_table_is_told() -> None:
    chosen = selection(rdbms(("shop", [])), rdbms(("shpo", [SECRETS])))
    assert list(chosen.idle_columns({TableId("shop", "orders"): NAMES}))


@pytest.mark.clause("ST-312")
@pytest.mark.parametrize(
    ("include", "exclude", "orders", "users"),
    [
        (rdbms(("shop", [table("orders", "id"), table("users")])), SECRETS, ["id"], ["id"]),
        (rdbms(("shop", [table("orders", "id"), table("users", "id")])), SECRETS, ["id"], ["id"]),
        (rdbms(("shop", [])), SECRETS, ["id", "note"], ["id"]),
        (
            rdbms(("shop", [table("orders", "note"), table("", "id", "secret")])),
            {},
            ["id", "note"],
            ["id", "secret"],
        ),
    ],
)
def test_a_column_that_one_table_of_several_has_concerns_something(
    include: Any, exclude: Any, orders: list[str], users: list[str]
) -> None:
    chosen = selection(include, rdbms(("shop", [exclude])) if exclude else None)
    there = {TableId("shop", "orders"): ["id", "note"], TableId("shop", "users"): ["id", "secret"]}
    assert list(chosen.idle_columns(there)) == []
    columns = [chosen.columns_of(one, names) for one, names in there.items()]
    assert columns == [orders, users]


@pytest.mark.parametrize("where", ["", "orders"])
def test_a_misspelt_column_is_told_beside_named_ones(where: str) -> None:
    include = rdbms(("shop", [table("orders", "id", "secret")]))
    chosen = selection(include, rdbms(("shop", [table(where, "secrt")])))
    (told,) = chosen.idle_columns({TableId("shop", "orders"): NAMES})
    assert told.startswith("!secrt")


def test_a_table_with_named_columns_keeps_its_patterns() -> None:
    """They are compared with those with which it was loaded."""
    include = rdbms(("shop", [table("orders", "id", "id"), table("users", "id", "secret")]))
    exclude = rdbms(("shop", [SECRETS, table("orders", "note")]))
    columns = selection(include, exclude).columns
    assert columns["shop.orders"] == ["id", "!note"]
    assert columns["shop.users"] == ["id", "secret", "!secret"]


@pytest.mark.clause("ST-282")
def test_tables_of_which_columns_are_named_are_not_left_out_as_a_whole() -> None:
    assert tables_of(rdbms(("shop", [table("orders", "id"), table("users")]))) == ["shop.users"]


def test_lists_that_cross_count_both() -> None:
    chosen = selection(None, rdbms(("shop", [SECRETS]), ("", [table("orders", "note")])))
    assert chosen.columns_of(TableId("shop", "orders"), NAMES) == ["id"]
    assert chosen.columns_of(TableId("shop", "users"), NAMES) == ["id", "note"]
    assert chosen.columns_of(TableId("crm", "orders"), NAMES) == ["id", "secret"]
