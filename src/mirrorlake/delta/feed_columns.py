"""The columns that rows of a change feed have beside those of their table (Delta Lake, "Read
changes"). Settings name them, so nothing that reads files is imported here."""

from __future__ import annotations

from mirrorlake.delta.write.data_files import CHANGE_TYPE

COMMIT_VERSION, COMMIT_TIMESTAMP = "_commit_version", "_commit_timestamp"
METADATA = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)
