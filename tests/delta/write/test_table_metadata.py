"""Actions that describe a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mirrorlake.apply.in_process.tables import LogTables
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.delta.write import table_metadata
from mirrorlake.delta.write.commit import write_commit
from mirrorlake.model import types
from mirrorlake.model.table import Column, Schema
from mirrorlake.storage.local import LocalStore

DELETION_VECTORS = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["deletionVectors"],
    "writerFeatures": ["deletionVectors", "changeDataFeed"],
}


@pytest.mark.parametrize(
    ("protocol", "wider"),
    [
        (table_metadata.PROTOCOL, None),
        ({"minReaderVersion": 2, "minWriterVersion": 5}, None),
        (
            {"minReaderVersion": 1, "minWriterVersion": 4},
            {"minReaderVersion": 2, "minWriterVersion": 5},
        ),
        (
            DELETION_VECTORS,
            DELETION_VECTORS
            | {
                "readerFeatures": ["deletionVectors", "columnMapping"],
                "writerFeatures": ["deletionVectors", "changeDataFeed", "columnMapping"],
            },
        ),
    ],
)
def test_columns_are_mapped_only_by_a_protocol_that_has_it(
    protocol: dict[str, Any], wider: dict[str, Any] | None
) -> None:
    assert table_metadata.with_mapping(protocol) == wider


def test_a_table_that_begins_to_map_columns_has_the_feature(tmp_path: Path) -> None:
    store, path = LocalStore(tmp_path), "Tables/s/t"
    described = table_metadata.metadata(Schema.of([Column("id", types.LONG)]))
    location = store.location(path)
    write_commit(location, 0, [{"protocol": DELETION_VECTORS}, {"metaData": described}])
    LogTables(store).set_properties(path, {"delta.columnMapping.mode": "name"})
    found = TableLog(location).snapshot().protocol
    assert "columnMapping" in found["readerFeatures"]
    assert "columnMapping" in found["writerFeatures"]
