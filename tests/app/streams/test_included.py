"""The include and exclude lists of a stream, as the selection of its mirror."""

from __future__ import annotations

from typing import Any

import pytest

from mirrorlake.app.streams.included import selection
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


def test_lists_that_cross_count_both() -> None:
    chosen = selection(None, rdbms(("shop", [SECRETS]), ("", [table("orders", "note")])))
    assert chosen.columns_of(TableId("shop", "orders"), NAMES) == ["id"]
    assert chosen.columns_of(TableId("shop", "users"), NAMES) == ["id", "note"]
    assert chosen.columns_of(TableId("crm", "orders"), NAMES) == ["id", "secret"]
