"""The plan for one table: from what is landed and what is recorded to steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mirrorlake.errors import BadFile, TableError, printable
from mirrorlake.landing.metadata import BY_TIME, NAMED
from mirrorlake.landing.parquet.reader import Inspected
from mirrorlake.landing.scan import Landed, TableScan
from mirrorlake.mirror import schema_evolution as schemas
from mirrorlake.mirror.batch import Run, batch_of
from mirrorlake.mirror.row_checks import check_size
from mirrorlake.mirror.steps import (
    AddColumns,
    AlterColumns,
    ApplyFiles,
    CleanUp,
    CreateTable,
    Discard,
    Estimate,
    Evidence,
    SetKey,
    Step,
    TablePlan,
)
from mirrorlake.mirror.strategy import Facts, way_of
from mirrorlake.mirror.table.known_table import KnownTable
from mirrorlake.mirror.table.refusals import refusal
from mirrorlake.model.change import Marker, SchemaChangeKind
from mirrorlake.model.landed import FileKind
from mirrorlake.model.state import TableState
from mirrorlake.model.table import Schema, TableId

NO_METADATA = "_metadata.json is missing (LZ-040)"


def candidates(known: KnownTable) -> Run:
    """The files whose footers the plan needs."""
    if refusal(known) or known.is_unread:
        return Run(())
    return known.detection.run(known.scan, known.settings.limits)


def plan(
    known: KnownTable, run: Run, inspected: Mapping[str, Inspected | TableError], generation: str
) -> TablePlan:
    """The steps for one table.

    run: as `candidates` gave it; inspected: its files by path, or what is wrong with them;
    generation: for a table that has to be made for a zone of another publisher.
    """
    if error := refusal(known):
        return _planned(known, TableState.FAILED, error=error)
    if known.is_unread:
        return _planned(known, TableState.INITIALIZED, waiting=NO_METADATA)
    good, error = _readable(known, run, inspected)
    facts = {file.path: _good(inspected[file.path]) for file in good}
    if known.scan.detection in NAMED:
        # What our capture says in footers is about one sequence, and here there is none.
        facts = {path: replace(found, footer=None) for path, found in facts.items()}
    schema = Schema(()) if known.is_reseeded else known.progress.schema
    good, wrong = _merged(known, schema, good, facts)
    error = wrong or error
    batch = batch_of(good, facts, known.settings.limits)
    steps: list[Step] = []
    try:
        if batch:
            steps = _steps(known, batch, facts, generation)
    except TableError as found:
        error, steps = found, []
    steps += _cleanup(known)
    waiting = (
        "" if batch or error or not good else "the files of its last transaction are incomplete"
    )
    if not (known.progress.exists or error):
        waiting = waiting or other_files(known.scan)
    state = TableState.FAILED if error else _state(known, facts, batch)
    return _planned(known, state, steps, error, waiting, pending=len(good))


def other_files(scan: TableScan) -> str:
    """What lies in the folder of a table in the place of its first data file; empty for nothing."""
    name, count = scan.others
    if not count:
        return f"its first data file: {scan.not_a_file}" if scan.not_a_file else ""
    more = f" and {count - 1:,} more are" if count > 1 else " is"
    kind = "data files" if count > 1 else "a data file"
    needed = "20 digits and an extension" if scan.detection != BY_TIME else "its extension"
    return f"its first data file: {printable(name)}{more} not named as {kind} ({needed})"


def _readable(
    known: KnownTable, run: Run, inspected: Mapping[str, Inspected | TableError]
) -> tuple[list[Landed], TableError | None]:
    """The files before the first one that cannot be read, and what is wrong with it."""
    good: list[Landed] = []
    for file in run.files:
        found = inspected[file.path]
        if isinstance(found, TableError):
            return good, found
        try:
            check_size(
                found, known.settings.row_checks, table=str(known.scan.table), file=str(file.name)
            )
        except TableError as error:
            return good, error
        if known.scan.detection in NAMED and _is_truncation(found):
            return good, BadFile(
                "it truncates the table, but files without one sequence do not define which rows "
                "came before",
                table=str(known.scan.table),
                file=str(file.name),
                hint="Remove it, or number the files in the table folder.",
            )
        good.append(file)
    return good, run.error


def _is_truncation(facts: Inspected) -> bool:
    return facts.footer is not None and facts.footer.kind is FileKind.TRUNCATE


def _merged(
    known: KnownTable, schema: Schema, files: Sequence[Landed], facts: Mapping[str, Inspected]
) -> tuple[list[Landed], TableError | None]:
    """The files whose columns go together with those of the table, and what ends them."""
    good: list[Landed] = []
    for file in files:
        try:
            schema = _merge(known, schema, file, facts[file.path])
        except TableError as error:
            return good, error
        good.append(file)
    return good, None


def _merge(known: KnownTable, schema: Schema, file: Landed, facts: Inspected) -> Schema:
    """The columns after a file. Raises SchemaMergeFailure, UnsupportedColumn."""
    name = str(known.scan.table)
    stops_at = known.settings.stops_at
    # Of a source that we read, the wider type is that of all rows from here on.
    widens = facts.footer is not None and SchemaChangeKind.TYPE_WIDENED not in stops_at
    grows = not schema.columns or SchemaChangeKind.COLUMN_ADDED not in stops_at
    return schemas.merge(name, schema, facts.schema, str(file.name), widens=widens, grows=grows)


def _steps(
    known: KnownTable, batch: Sequence[Landed], facts: Mapping[str, Inspected], generation: str
) -> list[Step]:
    scan, progress = known.scan, known.progress
    name = str(scan.table)
    schema = Schema(()) if known.is_reseeded else progress.schema
    for file in batch:
        schema = _merge(known, schema, file, facts[file.path])
    # A key that was named once stays, also when the file that named it is gone (LZ-036).
    wanted = scan.metadata.key_columns if scan.metadata else progress.key
    key = schemas.key_columns(name, wanted, schema, str(batch[0].name))
    ours = scan.metadata.ours if scan.metadata else None
    steps: list[Step] = []
    if known.is_reseeded and ours is None and (aside := scan.moved()):
        steps.append(Discard(scan.table, scan.folder.path, aside))
    if not progress.exists or known.is_reseeded:
        generation = ours.generation if ours else generation
        steps.append(
            CreateTable(
                table=scan.table,
                path=known.path,
                folder=scan.folder.path,
                schema=schema,
                key=key,
                generation=generation,
                replace=known.is_reseeded,
                required=tuple(c.name for c in facts[batch[0].path].schema if not c.nullable),
                detection=scan.detection,
            )
        )
    else:
        if new := [column for column in schema if column.name not in progress.schema]:
            steps.append(AddColumns(scan.table, known.path, tuple(new)))
        if altered := _altered(known, schema, batch[0], facts[batch[0].path]):
            steps.append(altered)
        if key and not progress.key:
            steps.append(SetKey(scan.table, known.path, key))
    steps.append(_apply(known, batch, facts, key))
    return steps


def _altered(
    known: KnownTable, schema: Schema, first: Landed, facts: Inspected
) -> AlterColumns | None:
    """What has to be done to earlier rows before the first file of a batch, which capture wrote."""
    if facts.footer is None:
        return None
    step = AlterColumns(known.scan.table, known.path, first.number, {}, None, {})
    is_done = known.progress.altered >= first.number
    told = None if is_done else facts.footer.alteration
    return schemas.alteration(step, schema, known.progress.schema, told)


def _apply(
    known: KnownTable, batch: Sequence[Landed], facts: Mapping[str, Inspected], key: tuple[str, ...]
) -> ApplyFiles:
    settings = known.settings
    footers = [facts[file.path].footer for file in batch]
    emptied = [i for i, file in enumerate(batch) if _is_truncation(facts[file.path])]
    # What stands before the last truncation of the batch leaves nothing behind.
    files = batch[emptied[-1] + 1 :] if emptied else batch
    first, last = footers[0], footers[-1]
    numbering = known.detection.number(batch)
    metadata = known.scan.metadata
    upsert = metadata is not None and metadata.upsert_default
    marked = any(facts[file.path].has_marker for file in files)
    whole_rows = metadata is not None and metadata.whole_rows
    keyless = not (key or whole_rows)
    appends = not emptied and (keyless or not (upsert or marked))
    delegated = "" if known.is_reseeded else known.progress.delegated
    rows = sum(facts[file.path].rows for file in batch)
    size = sum(facts[file.path].size for file in batch)
    large = settings.limits.is_large(rows, size)
    return ApplyFiles(
        table=known.scan.table,
        path=known.path,
        folder=known.scan.folder.path,
        files=tuple(files),
        first=numbering.first,
        last=numbering.last,
        key=key,
        default=Marker.UPSERT if upsert else Marker.INSERT,
        # A load is appended; where rows are upserts, keys have to be looked up (LZ-105).
        is_load=not upsert and _is_load(batch, facts),
        truncated=bool(emptied),
        appends=appends,
        names=numbering.names,
        row_checks=settings.row_checks,
        evidence=Evidence(
            positions=(first.first, last.last) if first and last else None,
            cut=known.target.cut if numbering.last == known.target.number else None,
            source_time=last.commit_times[1] if last and last.commit_times else None,
            landed_bytes=sum(file.size for file in batch),
            loading=_is_loading(known, facts, batch)
            and known.detection.is_more(known.scan.files, batch),
            described=known.scan.described.etag if known.scan.described else "",
        ),
        estimate=Estimate(
            rows=rows,
            size=size,
            is_exact=all(facts[file.path].is_exact for file in batch),
            choice=way_of(Facts(settings.strategy, known.platform, delegated, appends, large)),
        ),
        backfill=first.backfill if first else None,
        whole_rows=whole_rows,
    )


def _is_load(files: Sequence[Landed], facts: Mapping[str, Inspected]) -> bool:
    """Whether every row is an insert: of a load of ours, or of texts without markers."""
    found = [facts[file.path] for file in files]
    first = found[0].footer if found else None
    if first is not None:
        return first.kind is FileKind.LOAD
    return bool(files) and all(
        file.text is not None and not one.has_marker for file, one in zip(files, found, strict=True)
    )


def _cleanup(known: KnownTable) -> list[Step]:
    """Applied files go aside, but for the last of them (LZ-243)."""
    if known.is_reseeded or not known.progress.exists:
        return []
    by_folder: dict[str, list[Landed]] = {}
    for file in known.detection.done(known.scan.files):
        by_folder.setdefault(file.path.rpartition("/")[0], []).append(file)
    return [
        CleanUp(known.scan.table, location, tuple(done)) for location, done in by_folder.items()
    ]


def _state(
    known: KnownTable, facts: Mapping[str, Inspected], batch: Sequence[Landed]
) -> TableState:
    """Snapshotting until a marker was seen or nothing is left to load (LZ-099)."""
    if known.is_reseeded or known.progress.is_reseeding:
        return TableState.RESEEDING
    if not known.progress.exists and not batch:
        # With metadata and no file it waits for one, for as long as it takes (LZ-275).
        described = known.scan.metadata is not None
        return TableState.SNAPSHOTTING if described else TableState.INITIALIZED
    loading = bool(batch) and _is_loading(known, facts, batch)
    return TableState.SNAPSHOTTING if loading else TableState.REPLICATING


def _is_loading(known: KnownTable, facts: Mapping[str, Inspected], batch: Sequence[Landed]) -> bool:
    """Whether these are among the first files of a table, without a marker so far (LZ-098)."""
    fresh = known.is_reseeded or known.progress.is_loading
    return fresh and not any(facts[file.path].has_marker for file in batch)


def _planned(
    known: KnownTable,
    state: TableState,
    steps: Sequence[Step] = (),
    error: TableError | None = None,
    waiting: str = "",
    pending: int = 0,
) -> TablePlan:
    return TablePlan(
        table=known.scan.table,
        path=known.path,
        folder=known.scan.folder.path,
        state=state,
        steps=tuple(steps),
        error=error,
        waiting=waiting,
        pending=pending,
        partition_folders=tuple(
            f"{known.scan.folder.path}/{part}" for part in known.scan.partitions if part
        ),
        exists=known.progress.exists,
    )


def _good(found: Inspected | TableError) -> Inspected:
    assert not isinstance(found, TableError)
    return found


def nested(paths: Mapping[TableId, str]) -> dict[TableId, TableId]:
    """Tables whose path lies inside the path of another, both ways: VACUUM of the outer one would
    delete the files of the inner one."""
    ordered = sorted((tuple(path.split("/")), table) for table, path in paths.items())
    found: dict[TableId, TableId] = {}
    for location, (outer, table) in enumerate(ordered):
        for inner, other in ordered[location + 1 :]:
            if inner[: len(outer)] != outer:
                break
            found[table], found[other] = other, table
    return found
