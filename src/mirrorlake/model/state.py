"""States of a mirrored table."""

from __future__ import annotations

from enum import StrEnum


class TableState(StrEnum):
    """The states of LZ-296."""

    INITIALIZED = "Initialized"  # known, but not yet readable: no metadata or no first file
    SNAPSHOTTING = "Snapshotting"  # its first files are being applied (LZ-099)
    REPLICATING = "Replicating"  # the load is complete; changes follow
    RESEEDING = "Reseeding"  # it is rebuilt because its folder was recreated (LZ-234)
    STOPPED = "Stopped"  # a person stopped it
    FAILED = "Failed"  # an error waits for a person or for a new file
