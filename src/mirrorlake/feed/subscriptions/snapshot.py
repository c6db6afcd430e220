"""All rows of a table at one version, with the columns of its feed, file by file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from mirrorlake.delta.log.history import commit_time
from mirrorlake.delta.log.table_log import Action, TableLog
from mirrorlake.delta.schema import parse
from mirrorlake.delta.workspace import open_workspace
from mirrorlake.feed.bounds import FeedRequest
from mirrorlake.feed.change_files import (
    METADATA_FIELDS,
    gone_rows,
    rows_of_file,
    with_metadata,
)
from mirrorlake.feed.reader import as_feed_error, readable_snapshot
from mirrorlake.model.arrow import arrow_schema
from mirrorlake.storage.options import ObjectOptions

SNAPSHOT = "snapshot"
"""The `_change_type` of rows of a snapshot (CF-182)."""


class FeedSnapshot:
    """The rows of a table at a version, or at the one that was the newest at construction."""

    def __init__(
        self,
        request: FeedRequest,
        log: TableLog,
        options: ObjectOptions | None = None,
        *,
        version: int | None = None,
    ) -> None:
        """Raises FeedError."""
        self.request, self._options = request, options
        with as_feed_error(request, version):
            found = readable_snapshot(request, log)
            if version is not None and version != found.version:
                found = log.snapshot_at(version)
            self.version, self.metadata = found.version, found.metadata
            self.table_id = str(found.metadata.get("id", ""))
            self._files: Sequence[Action] = list(found.files.values())
            self._schema = parse(found.metadata)
            moment = commit_time(self.version, log.actions(self.version))
        self.time, self._moment = datetime.fromtimestamp(moment / 1000, UTC), moment

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*arrow_schema(self._schema.schema), *METADATA_FIELDS])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, in no order, file by file. Raises FeedError and Unavailable."""
        with (
            as_feed_error(self.request),
            open_workspace(self.request.table, self._options) as workspace,
        ):
            for file in self._files:
                workspace.fetch([file])
                rows = rows_of_file(workspace.folder, file, self._schema, self.version)
                gone = gone_rows(workspace.folder, file)
                if gone is not None and len(gone):
                    rows = rows.take(pa.array(np.setdiff1d(np.arange(rows.num_rows), gone)))
                yield from with_metadata(rows, SNAPSHOT, self.version, self._moment).to_batches()
