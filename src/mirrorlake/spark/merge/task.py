"""What tasks do for a `MERGE`: read and fold a batch, and write what Spark needs as Parquet files.

A batch is folded twice. The first task says which keys matter; Spark looks up the rows that the
table has of them, in whatever way the table is written; the second task sets the batch against
those rows. A fold takes less than to carry its result from one task to the other.

In the files columns are called by their place, so that no name of a user's has to be quoted.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlake.apply.commit_metadata import Rows, by_marker
from mirrorlake.apply.fold import Batch, fold
from mirrorlake.apply.merge_actions import MergeAction, MergeActions, inserts_of, merge_actions
from mirrorlake.delta.partitions import NullText, check_texts
from mirrorlake.delta.write.rewrite import NoBaseRow
from mirrorlake.errors import MirrorlakeError, MissingBaseRow
from mirrorlake.mirror.engine import Counts
from mirrorlake.model.arrow import nullable_schema
from mirrorlake.model.net import NetChanges
from mirrorlake.model.table import Schema
from mirrorlake.spark import task
from mirrorlake.spark.task import TaskSpec

CODE, ACTION = "code", "act"


@dataclass(frozen=True, slots=True)
class MergeSpec:
    """A batch, or a part of a load, and the folder in which to write for it.

    found: the folder with the rows that the table has of its keys, once Spark has looked them up;
    deleted: how many rows a truncation removes, once they are counted.
    """

    batch: TaskSpec
    folder: str
    found: str | None = None
    deleted: int | None = None


@dataclass(frozen=True, slots=True)
class MergeResult:
    """source: the Parquet file of acts, or keys: that of the keys to look up first.

    whole: whether all columns of the rows that are found are needed, because values are missing;
    does: the kinds of acts in the source; read: rows of each landed file.
    """

    source: str = ""
    keys: str = ""
    whole: bool = False
    counts: Counts | None = None
    does: frozenset[MergeAction] = frozenset()
    read: tuple[Rows, ...] = ()
    error: MirrorlakeError | None = None


def column(index: int) -> str:
    """The name of a table's column in the files of a merge."""
    return f"c{index}"


def run(spec: MergeSpec) -> MergeResult:
    """Do the work of one specification; its errors are part of the result."""
    try:
        return _run(spec)
    except NoBaseRow:
        return MergeResult(error=_no_base(spec.batch))
    except NullText as error:
        return MergeResult(error=task.null_text(spec.batch, error))
    except MirrorlakeError as error:
        return MergeResult(error=error)
    except Exception as error:  # noqa: BLE001  (it becomes the table's error)
        return MergeResult(error=task.fault(spec.batch.table, error))


def _run(spec: MergeSpec) -> MergeResult:
    batch = spec.batch
    files = [(landed.name, task.rows(batch, landed)) for landed in batch.landed]
    schema = batch.schema.schema
    net = fold(Batch(batch.table, schema, batch.key, files, batch.truncate))
    read = tuple(by_marker(rows.marker) for _name, rows in files)
    if net.truncate and spec.deleted is None:
        return MergeResult(read=read)
    if net.truncate or net.is_append:
        return _source(spec, inserts_of(net, spec.deleted or 0), read)
    if spec.found is None:
        whole = net.missing is not None
        return MergeResult(keys=_keys(spec.folder, net), whole=whole, read=read)
    code, found = _found(spec.found, schema if net.missing is not None else None)
    return _source(spec, merge_actions(net, code, found), read)


def _source(spec: MergeSpec, actions: MergeActions, read: tuple[Rows, ...]) -> MergeResult:
    if partitions := spec.batch.schema.partitions:
        written = np.isin(actions.action, [int(MergeAction.INSERT), int(MergeAction.UPDATE)])
        check_texts(actions.rows.filter(pa.array(written)), partitions)
    columns = [*actions.rows.columns, pa.array(actions.action)]
    names = [*(column(index) for index in range(actions.rows.num_columns)), ACTION]
    path = _written(spec.folder, f"source-{uuid.uuid4()}", pa.table(columns, names=names))
    does = frozenset(MergeAction(int(action)) for action in np.unique(actions.action))
    return MergeResult(source=path, counts=actions.counts, does=does, read=read)


def _keys(folder: str, net: NetChanges) -> str:
    """The keys whose rows have to be known, each with its number."""
    wanted = np.flatnonzero(net.reset)
    keys = net.keys.take(pa.array(wanted))
    names = [*(column(index) for index in range(keys.num_columns)), CODE]
    table = pa.table([*keys.columns, pa.array(wanted, pa.int64())], names=names)
    return _written(folder, "keys", table)


def _found(folder: str, schema: Schema | None) -> tuple[np.ndarray, pa.Table | None]:
    """What Spark has found: the number of the key of each row; the rows, where they are asked
    for."""
    parts = [
        pq.read_table(path, partitioning=None) for path in sorted(Path(folder).glob("*.parquet"))
    ]
    if not parts:
        empty = nullable_schema(schema).empty_table() if schema else None
        return np.zeros(0, np.int64), empty
    both = pa.concat_tables(parts)
    code = both[CODE].to_numpy()
    if schema is None:
        return code, None
    columns = [both[column(index)].cast(f.type) for index, f in enumerate(nullable_schema(schema))]
    return code, pa.table(columns, schema=nullable_schema(schema))


def _written(folder: str, name: str, rows: pa.Table) -> str:
    path = Path(folder, f"{name}.parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        rows,
        path,
        compression="zstd",
        coerce_timestamps="us",
        store_schema=False,
        write_statistics=False,  # they leave NaN out, to which Spark is blind
    )
    return str(path)


def _no_base(batch: TaskSpec) -> MissingBaseRow:
    return MissingBaseRow(
        "a value that did not change has no single row in the table to be taken from",
        table=batch.table,
        file=batch.landed[0].name,
        hint=f"Load the table anew with `mirrorlake reset {batch.table}`.",
    )
