"""Plans the steps for one table, from its landed files and its recorded progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mirrorlake.delta.schema import is_mapped, may_widen
from mirrorlake.errors import BadFile, TableError, printable
from mirrorlake.landing.metadata import BY_TIME, NAMED
from mirrorlake.landing.parquet.reader import Inspected
from mirrorlake.landing.scan import Landed, TableScan
from mirrorlake.mirror import schema_evolution as schemas
from mirrorlake.mirror.batch import Run, batch_of
from mirrorlake.mirror.renaming import after_renaming, renamed_columns, with_names
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
    RenameColumns,
    SetFeed,
    SetKey,
    Step,
    TablePlan,
)
from mirrorlake.mirror.strategy import StrategyFacts, choose_strategy
from mirrorlake.mirror.table.known_table import KnownTable
from mirrorlake.mirror.table.refusals import no_soft_deletes, refusal
from mirrorlake.model.change import ROW_DELETED, Alteration, Marker, SchemaChangeKind
from mirrorlake.model.landed import FileKind
from mirrorlake.model.state import TableState
from mirrorlake.model.table import Column, Schema, TableId
from mirrorlake.model.types import BOOLEAN

NO_METADATA = "_metadata.json is missing (LZ-040)"


def candidates(known: KnownTable) -> Run:
    """The files whose footers `plan` needs."""
    if refusal(known) or known.awaits_metadata:
        return Run(())
    return known.detection.run(known.scan, known.settings.limits)


def plan(
    known: KnownTable, run: Run, inspected: Mapping[str, Inspected | TableError], generation: str
) -> TablePlan:
    """Plan the steps for one table.

    run: the result of `candidates`; inspected: the footers of its files by path, or the error of
    reading one; generation: for a new table of another publisher, who writes no generation.
    """
    if error := refusal(known):
        return _planned(known, TableState.FAILED, error=error)
    if known.awaits_metadata:
        return _planned(known, TableState.INITIALIZED, waiting=NO_METADATA)
    good, error = _readable(known, run, inspected)
    facts = {file.path: _footer_of(inspected[file.path]) for file in good}
    if known.scan.detection in NAMED:
        # Footers of our capture refer to a single sequence, which these files do not have.
        facts = {path: replace(found, footer=None) for path, found in facts.items()}
    schema = Schema(()) if known.is_reseeded else known.progress.schema
    good, wrong = _mergeable(known, schema, good, facts)
    error = wrong or error
    batch = batch_of(good, facts, known.settings.limits, soft=known.settings.soft_deletes)
    steps: list[Step] = []
    try:
        if batch:
            steps = _steps(known, batch, facts, generation)
        steps = [*_feed_step(known), *steps]
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
    """A message about files in a table folder that are not data files, if it has no data file; ""
    if there are none."""
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
    """The files before the first one that cannot be applied, and its error, if any."""
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


def _mergeable(
    known: KnownTable, schema: Schema, files: Sequence[Landed], facts: Mapping[str, Inspected]
) -> tuple[list[Landed], TableError | None]:
    """The files before the first one whose columns do not match the table, and its error, if
    any."""
    good: list[Landed] = []
    for file in files:
        try:
            schema = _merge(known, schema, file, facts[file.path])
        except TableError as error:
            return good, error
        good.append(file)
    return good, None


def _merge(known: KnownTable, schema: Schema, file: Landed, facts: Inspected) -> Schema:
    """The columns of the table after a file. Raises SchemaMergeFailure, UnsupportedColumn."""
    name = str(known.scan.table)
    schema, altered, _names = _renamed(known, schema, file, facts)
    stops_at = known.settings.stops_at
    # In files of our capture, the wider type applies to all later rows.
    widens = facts.footer is not None and SchemaChangeKind.TYPE_WIDENED not in stops_at
    grows = not schema.columns or SchemaChangeKind.COLUMN_ADDED not in stops_at
    if known.settings.soft_deletes:
        schemas.check_not_deleted(name, facts.schema, str(file.name))
    return schemas.merge(
        name,
        schema,
        facts.schema,
        str(file.name),
        widens=widens,
        grows=grows,
        ignores=_ignores(known, schema),
        removes=known.removes_columns,
        altered=altered,
        has_feed=known.options.has_feed,
    )


def _ignores(known: KnownTable, schema: Schema) -> bool:
    """Whether new columns are left out. The first file of a table brings all of its columns."""
    return known.settings.ignores_new_columns and bool(schema.columns)


def _pending_alteration(known: KnownTable, file: Landed, facts: Inspected) -> Alteration | None:
    """The alteration of columns in the footer of a file, if it has not been applied yet."""
    if facts.footer is None or known.progress.altered >= file.number:
        return None
    return facts.footer.alteration


def _renamed(
    known: KnownTable, schema: Schema, file: Landed, facts: Inspected
) -> tuple[Schema, Alteration | None, Mapping[str, str]]:
    """The columns of the table and what is left of the alteration of a file, after the columns
    were renamed that only get another name; and these names, where it is still to be done."""
    altered = _pending_alteration(known, file, facts)
    if altered is None or not schema.columns:
        return schema, altered, {}
    if known.progress.renamed_before == file.number:
        return schema, after_renaming(altered, known.progress.renamed), {}
    if not known.renames_columns or _ignores(known, schema):
        return schema, altered, {}
    names = renamed_columns(schema, facts.schema, altered)
    for name in names.values():
        has_feed = known.options.has_feed
        schemas.check_name(str(known.scan.table), name, str(file.name), has_feed=has_feed)
    return with_names(schema, names), after_renaming(altered, names), names


def _steps(
    known: KnownTable, batch: Sequence[Landed], facts: Mapping[str, Inspected], generation: str
) -> list[Step]:
    scan, progress = known.scan, known.progress
    name = str(scan.table)
    schema = Schema(()) if known.is_reseeded else progress.schema
    for file in batch:
        schema = _merge(known, schema, file, facts[file.path])
    pending = _pending_alteration(known, batch[0], facts[batch[0].path])
    if pending is not None and pending.whole_rows and known.settings.soft_deletes:
        raise no_soft_deletes(name)
    key = schemas.key_columns(name, _batch_key(known, pending), schema, str(batch[0].name))
    ours = scan.metadata.ours if scan.metadata else None
    steps: list[Step] = []
    if known.is_reseeded and ours is None and (aside := scan.moved()):
        steps.append(Discard(scan.table, scan.folder.path, aside))
    soft = known.settings.soft_deletes
    if not progress.exists or known.is_reseeded:
        if soft:
            schema = Schema.of([*schema, Column(ROW_DELETED, BOOLEAN)])
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
                soft=soft,
                feed=known.options.feed,
            )
        )
    else:
        steps += _column_steps(known, schema, batch[0], facts[batch[0].path])
        if key and not progress.key and progress.whole_rows is None:
            steps.append(SetKey(scan.table, known.path, key))
    steps.append(_apply(known, batch, facts, key))
    return steps


def _feed_step(known: KnownTable) -> list[Step]:
    """What the project wants the commits of a table to record, where they do not."""
    feed = known.options.feed
    if not known.progress.exists or known.is_reseeded or feed is known.feed:
        return []
    return [SetFeed(known.scan.table, known.path, feed)]


def _batch_key(known: KnownTable, pending: Alteration | None) -> tuple[str, ...]:
    """The key of a batch: of an alteration, of an earlier one, or of `_metadata.json`. It stays if
    that is deleted (LZ-036)."""
    if pending is not None and pending.key is not None:
        return pending.key
    described = known.scan.metadata
    is_recorded = known.progress.whole_rows is not None and not known.is_reseeded
    return known.progress.key if is_recorded or described is None else described.key_columns


def _column_steps(known: KnownTable, schema: Schema, first: Landed, facts: Inspected) -> list[Step]:
    """What gives an existing table the columns `schema` of a batch, and their values to existing
    rows."""
    table, path = known.scan.table, known.path
    present, altered, names = _renamed(known, known.progress.schema, first, facts)
    maps, steps = not is_mapped(known.progress.properties), list[Step]()
    if names:
        key = known.progress.key if {*names} & {*known.progress.key} else None
        whole_rows = known.whole_rows
        steps.append(RenameColumns(table, path, first.number, names, key, whole_rows, maps))
    if new := [column for column in schema if column.name not in present]:
        steps.append(AddColumns(table, path, tuple(new)))
    if facts.footer is None:  # only our capture alters columns
        return steps
    step = AlterColumns(table, path, first.number, {}, None, {})
    ignores = _ignores(known, present)
    found = schemas.alteration(step, schema, present, altered, ignores=ignores)
    if found is not None:
        drops = bool(found.dropped) and known.removes_columns
        maps = drops and maps and not names
        steps.append(replace(found, maps=maps, widened=_widened(known, present, found, names)))
    return steps


def _widened(
    known: KnownTable, schema: Schema, step: AlterColumns, names: Mapping[str, str]
) -> frozenset[str]:
    """The columns that a step widens without rewriting data files: all that get another type, or
    none, because files are rewritten with all of their columns. names: new ones, by those of the
    table, which `schema` has already."""
    excepted = {*step.converted, *(names.get(n, n) for n in known.progress.partitions)}
    are_all = all(
        may_widen(kind, schema[name].type) and name not in excepted
        for name, kind in step.types.items()
    )
    return frozenset(step.types) if are_all and known.widens_types else frozenset()


def _apply(
    known: KnownTable, batch: Sequence[Landed], facts: Mapping[str, Inspected], key: tuple[str, ...]
) -> ApplyFiles:
    settings = known.settings
    footers = [facts[file.path].footer for file in batch]
    emptied = [i for i, file in enumerate(batch) if _is_truncation(facts[file.path])]
    # Files before the last truncation of the batch have no effect.
    files = batch[emptied[-1] + 1 :] if emptied else batch
    numbering = known.detection.number(batch)
    first, last = footers[0], footers[-1]
    metadata, pending = (
        known.scan.metadata,
        _pending_alteration(known, batch[0], facts[batch[0].path]),
    )
    upsert = metadata is not None and metadata.upsert_default
    marked = any(facts[file.path].has_marker for file in files)
    is_other_key = pending is not None and pending.key is not None
    whole_rows = pending.whole_rows if pending is not None and is_other_key else known.whole_rows
    if not key and first is not None and first.backfill is not None:
        whole_rows = True  # what was read again is compared by all columns
        if settings.soft_deletes:
            raise no_soft_deletes(str(known.scan.table))
    keyless = not (key or whole_rows)
    # A load is appended. Upserts need a key lookup (LZ-105), and so do inserts that may replace
    # deleted rows.
    soft = settings.soft_deletes
    is_load = not upsert and _is_load(batch, facts, soft=soft)
    appends = not emptied and (keyless or not (upsert or marked or (soft and not is_load)))
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
        is_load=is_load,
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
            choice=choose_strategy(
                StrategyFacts(settings.strategy, known.platform, delegated, appends, large)
            ),
        ),
        backfill=first.backfill if first else None,
        whole_rows=whole_rows,
        soft=soft,
        suppress_unchanged=known.options.suppress_unchanged,
    )


def _is_load(files: Sequence[Landed], facts: Mapping[str, Inspected], *, soft: bool) -> bool:
    """Whether every row is an insert of a load: the files are a load of our capture, or delimited
    text without markers. soft: with soft deletes, texts may follow deleted rows, so they are not a
    load."""
    found = [facts[file.path] for file in files]
    first = found[0].footer if found else None
    if first is not None:
        return first.kind is FileKind.LOAD
    return (
        not soft
        and bool(files)
        and all(
            file.text is not None and not found_.has_marker
            for file, found_ in zip(files, found, strict=True)
        )
    )


def _cleanup(known: KnownTable) -> list[Step]:
    """Steps that move applied files, except the last one, to the cleanup folder (LZ-243)."""
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
    """The state of a table: Snapshotting until a file has a marker or all files are applied
    (LZ-099)."""
    if known.is_reseeded or known.progress.is_reseeding:
        return TableState.RESEEDING
    if not known.progress.exists and not batch:
        # A table with metadata waits for its first file without a time limit (LZ-275).
        described = known.scan.metadata is not None
        return TableState.SNAPSHOTTING if described else TableState.INITIALIZED
    loading = bool(batch) and _is_loading(known, facts, batch)
    return TableState.SNAPSHOTTING if loading else TableState.REPLICATING


def _is_loading(known: KnownTable, facts: Mapping[str, Inspected], batch: Sequence[Landed]) -> bool:
    """Whether the batch belongs to the initial load: no file so far has a marker (LZ-098)."""
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


def _footer_of(found: Inspected | TableError) -> Inspected:
    assert not isinstance(found, TableError)
    return found


def nested(paths: Mapping[TableId, str]) -> dict[TableId, TableId]:
    """The tables whose path is inside the path of another table, or contains one, mapped to the
    other: VACUUM of the outer table would delete the files of the inner one."""
    ordered = sorted((tuple(path.split("/")), table) for table, path in paths.items())
    found: dict[TableId, TableId] = {}
    for location, (outer, table) in enumerate(ordered):
        for inner, other in ordered[location + 1 :]:
            if inner[: len(outer)] != outer:
                break
            found[table], found[other] = other, table
    return found
