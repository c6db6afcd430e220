"""In which format a stream brings values: the binary one of their types, or text.

The binary format is faster, but pgoutput has one format for all columns, and the log may have
values of types that no column has any more. So what cannot be read as it came is read again as
text.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from mirrorlake.sources.postgresql.changed_rows import decoders_of
from mirrorlake.sources.postgresql.types.sent_values import sent_reader
from mirrorlake.sources.postgresql.types.values import Extremes
from mirrorlake.sources.table import SourceTable

log = structlog.get_logger()

BINARY_OFF = "binary_off"

_FIRST_VERSION = 140_000  # that sends binary values


class ValueFormat:
    """What the streams of one source bring. Once something had to come as text, all that are opened
    later bring texts: the log may bring the same again."""

    def __init__(self, *, may_be_binary: bool) -> None:
        self._may_be_binary = may_be_binary

    def is_binary(self, tables: Sequence[SourceTable], server_version: int) -> bool:
        """Whether a stream of these tables is to bring values in binary format."""
        if not self._may_be_binary or server_version < _FIRST_VERSION:
            return False
        decoders = (
            decoder
            for table in tables
            for decoder in decoders_of(table, Extremes(), lambda _table, _column, _count: None)
        )
        return all(map(sent_reader, decoders))

    def need_text(self, slot: str, reason: str) -> None:
        self._may_be_binary = False
        log.info(BINARY_OFF, slot=slot, reason=reason, until="the next start")
