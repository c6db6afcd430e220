"""By which way a batch goes: from facts alone, with a reason."""

from __future__ import annotations

from typing import Any

import pytest

from mirrorlake.mirror.strategy import (
    CATALOG_FEATURES,
    SUPPORTED_FEATURES,
    StrategyFacts,
    StrategyName,
    StrategySetting,
    TableFacts,
    choose_strategy,
)

OURS = {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}


def column(name: str = "id", *, nullable: bool = True, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": "long", "nullable": nullable, "metadata": metadata}


def widened(former: str, new: str) -> dict[str, Any]:
    return column(**{"delta.typeChanges": [{"fromType": former, "toType": new}]})


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
    def test_a_table_created_by_mirrorlake_can_be_written_by_direct(self) -> None:
        assert (table().refused, table().delegated, table().computed) == ("", "", ())

    @pytest.mark.parametrize("kind", ["long", "string", "date", "boolean", "decimal(12,2)"])
    def test_so_can_a_table_with_unambiguous_partition_values(self, kind: str) -> None:
        assert table(partitions=("id",), fields=(column() | {"type": kind},)).delegated == ""

    def test_so_can_a_table_whose_files_have_narrower_numbers(self) -> None:
        features = frozenset({"typeWidening"})
        found = table(readers=features, writers=features, fields=(widened("integer", "long"),))
        assert (found.refused, found.delegated) == ("", "")

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
            (table(properties={"delta.enableDeletionVectors": "false"}), "no deletion vectors"),
            (TableFacts(properties=OURS, fields=(column(),)), "no deletion vectors"),
            (table(fields=(column(nullable=False),)), "id is NOT NULL"),
            (table(fields=(widened("float", "double"),)), "id was a float in some files"),
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
    def test_tables_with_checks_of_delta_are_delegated(self, found: TableFacts, told: str) -> None:
        assert told in found.delegated
        assert found.refused == ""

    @pytest.mark.parametrize(
        ("found", "told"),
        [
            (table(readers=frozenset({"aFeatureOfTomorrow"})), "aFeatureOfTomorrow"),
            *((table(writers=frozenset({name})), name) for name in sorted(CATALOG_FEATURES)),
            (
                table(fields=(column(__CHAR_VARCHAR_TYPE_STRING="char(3)"),)),
                "id is char(3), whose values Delta pads",
            ),
            (
                table(properties={"delta.setTransactionRetentionDuration": "interval 1 day"}),
                "remove the recorded progress",
            ),
            (table(properties={"delta.appendOnly": "TRUE"}), "no updates and deletions"),
        ],
    )
    def test_a_table_that_no_strategy_can_write_is_refused(
        self, found: TableFacts, told: str
    ) -> None:
        assert told in found.refused

    def test_columns_that_delta_computes_are_named(self) -> None:
        generated = column("g", **{"delta.generationExpression": "id + 1"})
        identity = column("i", **{"delta.identity.start": 1, "delta.identity.step": 1})
        assert table(fields=(column(), generated, identity)).computed == ("g", "i")


class TestChoice:
    def test_direct_is_the_default(self) -> None:
        assert choose_strategy(StrategyFacts()).strategy is StrategyName.DIRECT

    @pytest.mark.parametrize(
        "facts",
        [StrategyFacts(platform="it is odd"), StrategyFacts(platform="", table="it is odd")],
    )
    def test_the_obstacle_to_direct_is_the_reason_for_merge(self, facts: StrategyFacts) -> None:
        found = choose_strategy(facts)
        assert (found.strategy, found.reason, found.refused) == (
            StrategyName.MERGE,
            "it is odd",
            "",
        )

    def test_a_project_can_configure_merge(self) -> None:
        found = choose_strategy(StrategyFacts(StrategySetting.MERGE, platform="it is odd"))
        assert (found.strategy, found.refused) == (StrategyName.MERGE, "")
        assert "mirror.strategy" in found.reason

    def test_a_project_that_configures_direct_is_refused_if_it_is_impossible(self) -> None:
        assert choose_strategy(StrategyFacts(StrategySetting.DIRECT)).refused == ""
        found = choose_strategy(StrategyFacts(StrategySetting.DIRECT, table="it is partitioned"))
        assert (found.strategy, found.refused) == (StrategyName.DIRECT, "it is partitioned")

    @pytest.mark.parametrize("setting", list(StrategySetting))
    def test_batches_that_only_insert_are_marked(self, setting: StrategySetting) -> None:
        assert choose_strategy(StrategyFacts(setting, appends=True)).appends
        assert not choose_strategy(StrategyFacts(setting)).appends

    def test_a_choice_is_printed_as_plain_data(self) -> None:
        assert choose_strategy(StrategyFacts(table="it is odd", appends=True)).as_fact() == {
            "strategy": "merge",
            "reason": "it is odd",
            "appends": True,
            "large": False,
        }
