"""By which way a batch goes: from facts alone, with a reason."""

from __future__ import annotations

from typing import Any

import pytest

from mirrorlake.mirror.strategy import (
    ELSEWHERE,
    SUPPORTED_FEATURES,
    Facts,
    TableFacts,
    Wanted,
    Way,
    way_of,
)

OURS = {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}


def column(name: str = "id", *, nullable: bool = True, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": "long", "nullable": nullable, "metadata": metadata}


def table(**more: Any) -> TableFacts:
    """A table as we make it, but for what is named."""
    properties = OURS | more.pop("properties", {})
    return TableFacts(
        readers=frozenset({"deletionVectors"}) | more.pop("readers", frozenset()),
        writers=SUPPORTED_FEATURES | more.pop("writers", frozenset()),
        properties=properties,
        fields=more.pop("fields", (column(),)),
        **more,
    )


class TestTable:
    def test_a_table_as_we_make_it_is_ours_to_write(self) -> None:
        assert (table().refused, table().delegated, table().computed) == ("", "", ())

    @pytest.mark.parametrize("kind", ["long", "string", "date", "boolean", "decimal(12,2)"])
    def test_so_is_one_with_partitions_whose_values_have_one_text(self, kind: str) -> None:
        assert table(partitions=("id",), fields=(column() | {"type": kind},)).delegated == ""

    @pytest.mark.parametrize(
        ("found", "told"),
        [
            (table(writers=frozenset({"rowTracking"})), "rowTracking"),
            (table(writers=frozenset({"aFeatureOfTomorrow"})), "aFeatureOfTomorrow"),
            (table(unknown=frozenset({"b", "a"})), "its log has an action a, which"),
            (
                table(partitions=("ID",)),
                "it is partitioned by ID, a column that is not in its schema",
            ),
            (
                table(partitions=("at",), fields=(column() | {"name": "at", "type": "timestamp"},)),
                "it is partitioned by at, a timestamp",
            ),
            (table(properties={"delta.constraints.positive": "id > 0"}), "constraint positive"),
            (table(properties={"delta.appendOnly": "TRUE"}), "append-only"),
            (table(properties={"delta.enableDeletionVectors": "false"}), "no deletion vectors"),
            (TableFacts(properties=OURS, fields=(column(),)), "no deletion vectors"),
            (table(fields=(column(nullable=False),)), "id is NOT NULL"),
            (table(fields=(column(**{"delta.invariants": "{}"}),)), "id has an invariant"),
            (table(fields=(column(**{"delta.generationExpression": "1"}),)), "id is generated"),
            (table(fields=(column(**{"delta.identity.start": 1}),)), "id is an identity"),
            (
                table(fields=(column(__CHAR_VARCHAR_TYPE_STRING="varchar(3)"),)),
                "id has a length",
            ),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_what_delta_checks_or_keeps_itself_is_left_to_it(
        self, found: TableFacts, told: str
    ) -> None:
        assert told in found.delegated
        assert found.refused == ""

    @pytest.mark.parametrize(
        ("found", "told"),
        [
            (table(readers=frozenset({"aFeatureOfTomorrow"})), "aFeatureOfTomorrow"),
            *((table(writers=frozenset({name})), name) for name in sorted(ELSEWHERE)),
            (
                table(fields=(column(__CHAR_VARCHAR_TYPE_STRING="char(3)"),)),
                "id is char(3), whose values Delta pads",
            ),
            (
                table(properties={"delta.setTransactionRetentionDuration": "interval 1 day"}),
                "remove the recorded progress",
            ),
        ],
    )
    def test_a_table_whose_log_may_mislead_is_refused(self, found: TableFacts, told: str) -> None:
        assert told in found.refused

    def test_columns_that_delta_fills_in_are_named(self) -> None:
        generated = column("g", **{"delta.generationExpression": "id + 1"})
        identity = column("i", **{"delta.identity.start": 1, "delta.identity.step": 1})
        assert table(fields=(column(), generated, identity)).computed == ("g", "i")


class TestChoice:
    def test_the_direct_way_is_the_default(self) -> None:
        assert way_of(Facts()).way is Way.DIRECT

    @pytest.mark.parametrize(
        "facts", [Facts(platform="it is odd"), Facts(platform="", table="it is odd")]
    )
    def test_what_closes_it_is_the_reason_for_the_plain_way(self, facts: Facts) -> None:
        found = way_of(facts)
        assert (found.way, found.reason, found.refused) == (Way.MERGE, "it is odd", "")

    def test_a_project_may_ask_for_the_plain_way(self) -> None:
        found = way_of(Facts(Wanted.MERGE, platform="it is odd"))
        assert (found.way, found.refused) == (Way.MERGE, "")
        assert "mirror.strategy" in found.reason

    def test_a_project_that_asks_for_the_direct_way_is_refused_where_it_is_closed(self) -> None:
        assert way_of(Facts(Wanted.DIRECT)).refused == ""
        found = way_of(Facts(Wanted.DIRECT, table="it is partitioned"))
        assert (found.way, found.refused) == (Way.DIRECT, "it is partitioned")

    @pytest.mark.parametrize("wanted", list(Wanted))
    def test_batches_that_only_insert_are_told_apart(self, wanted: Wanted) -> None:
        assert way_of(Facts(wanted, appends=True)).appends
        assert not way_of(Facts(wanted)).appends

    def test_it_can_be_told_as_data(self) -> None:
        assert way_of(Facts(table="it is odd", appends=True)).as_fact() == {
            "strategy": "merge",
            "reason": "it is odd",
            "appends": True,
            "large": False,
        }
