"""What a Delta table says of itself: how far it is, and whether it is still ours."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mirrorlake.delta.log.table_log import TableSnapshot
from mirrorlake.landing.file_identity import Identity
from mirrorlake.mirror.strategy import SUPPORTED_FEATURES
from mirrorlake.mirror.table.progress import Progress, progress_of
from tests.mirror.planning import columns

APPLICATION = "mirrorlake/g"
FIELDS = [
    {"name": "id", "type": "integer", "nullable": True, "metadata": {}},
    {"name": "price", "type": "decimal(9,2)", "nullable": True, "metadata": {}},
]


def table(
    *,
    recorded: int = 5,
    fields: list[dict[str, Any]] = FIELDS,
    features: tuple[str, ...] = (),
    partitions: tuple[str, ...] = (),
    operations: dict[int, str] | None = None,
    **properties: str,
) -> TableSnapshot:
    """A table of ours at version 9, whose last batch is version 7."""
    ours = {"mirrorlake.generation": "g", "mirrorlake.keyColumns": '["id"]'}
    return TableSnapshot(
        version=9,
        protocol={"writerFeatures": list(features)},
        metadata={
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "partitionColumns": list(partitions),
            "configuration": ours | properties,
        },
        transactions={APPLICATION: recorded, "another": 77},
        recorded_in={APPLICATION: 7},
        commits={version: {"operation": name} for version, name in (operations or {}).items()},
    )


def test_no_table_has_no_progress() -> None:
    assert progress_of(TableSnapshot()) == Progress()
    assert not Progress().exists


def test_a_mirrored_table_has_its_progress() -> None:
    found = progress_of(table())
    assert (found.exists, found.version, found.recorded) == (True, 9, 5)
    assert (found.generation, found.application) == ("g", APPLICATION)


def test_a_mirrored_table_has_its_columns_and_key() -> None:
    found = progress_of(table())
    assert found.schema == columns(id="integer", price="decimal(9,2)")
    assert found.key == ("id",)


def test_a_table_that_recorded_nothing_begins_at_file_one() -> None:
    assert progress_of(table(**{"mirrorlake.generation": "later"})).recorded == 0


def test_a_foreign_table_has_no_generation() -> None:
    assert progress_of(table(**{"mirrorlake.generation": ""})).generation == ""


class TestRestore:
    def test_a_restore_after_the_last_batch_is_reported(self) -> None:
        assert progress_of(table(operations={7: "MERGE", 8: "RESTORE"})).restored == 8

    def test_the_last_of_several_restores_is_reported(self) -> None:
        assert progress_of(table(operations={8: "RESTORE", 9: "RESTORE"})).restored == 9

    def test_a_restore_before_the_last_batch_does_not_matter(self) -> None:
        assert progress_of(table(operations={6: "RESTORE", 7: "MERGE"})).restored is None

    def test_a_restore_before_the_first_batch_is_reported(self) -> None:
        new = table(operations={8: "RESTORE"}, **{"mirrorlake.generation": "later"})
        assert progress_of(new).restored == 8

    @pytest.mark.parametrize("operation", ["CREATE OR REPLACE TABLE", "REPLACE TABLE"])
    def test_a_restore_before_the_table_was_recreated_does_not_matter(self, operation: str) -> None:
        anew = table(operations={8: "RESTORE", 9: operation}, **{"mirrorlake.generation": "later"})
        assert progress_of(anew).restored is None

    def test_other_operations_do_not_matter(self) -> None:
        assert progress_of(table(operations={8: "OPTIMIZE", 9: "VACUUM END"})).restored is None


class TestUnsupported:
    def test_supported_features_are_accepted(self) -> None:
        assert progress_of(table(features=tuple(SUPPORTED_FEATURES))).unsupported == ""

    def test_features_that_only_delta_supports_are_delegated(self) -> None:
        found = progress_of(table(features=("deletionVectors", "rowTracking"), partitions=("id",)))
        assert "rowTracking" in found.delegated
        assert found.unsupported == ""

    def test_a_table_that_would_delete_its_transactions_is_not_written(self) -> None:
        name = "delta.setTransactionRetentionDuration"
        assert name in progress_of(table(**{name: "interval 1 day"})).unsupported

    @pytest.mark.parametrize("kind", ["timestamp_ntz", {"type": "array"}, "char(3)"])
    def test_a_column_of_another_type_is_named(self, kind: object) -> None:
        fields = [{"name": "odd", "type": kind, "nullable": True, "metadata": {}}]
        assert "odd" in progress_of(table(fields=fields)).unsupported


SAID = {"size": 10, "modified": 1.5, "tail": "end"}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"last": SAID}, Identity(10, 1.5, "end")),
        ({}, None),
        ({"last": None}, None),
        ({"last": {"size": "large"}}, None),
    ],
)
def test_a_table_records_the_last_applied_file(
    said: dict[str, Any], expected: Identity | None
) -> None:
    snapshot = table()
    snapshot.commits[7] = {"userMetadata": json.dumps({"mirrorlake": 1} | said)}
    snapshot.commits[8] = {"userMetadata": json.dumps({"last": {**SAID, "size": 99}})}
    assert progress_of(snapshot).last == expected
