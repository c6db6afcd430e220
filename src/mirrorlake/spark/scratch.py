"""What tasks of one batch hand on to each other: Arrow files in a folder of its own.

The folder lies in the storage that all of them reach, and goes when the batch is done. A file is
never written twice: a task that is run again writes another, and only the one it names in the end
is read.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from mirrorlake.model.arrow import contiguous


def write(folder: str, sections: Sequence[pa.RecordBatch]) -> str:
    """Write sections of one schema. Returns where; the folder must be there."""
    place = Path(folder, f"{uuid.uuid4()}.arrow")
    with place.open("xb") as file, pa.ipc.new_file(file, sections[0].schema) as writer:
        for section in sections:
            writer.write_batch(section)
    return str(place)


def read(place: str, section: int = 0) -> pa.RecordBatch:
    """One section, of which only what is looked at comes into memory."""
    return pa.ipc.open_file(pa.memory_map(place)).get_batch(section)


def whole(place: str) -> pa.Table:
    """All sections, of which only what is looked at comes into memory."""
    return pa.ipc.open_file(pa.memory_map(place)).read_all()


def section(table: pa.Table) -> pa.RecordBatch:
    """A table as one section."""
    columns = [contiguous(column) for column in table.columns]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)
