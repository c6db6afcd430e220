"""`mirrorlake publish`"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mirrorlake.cli.options import DEFAULT, Config, Json, Root

if TYPE_CHECKING:
    from mirrorlake.landing.text.format import TextFormat
    from mirrorlake.model.table import TableId
    from mirrorlake.model.types import DataType
    from mirrorlake.publisher import Published, Publisher
    from mirrorlake.storage.store import Store


def publish(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="CSV, JSON Lines, Parquet or Excel files. Each file is one batch."),
    ] = None,
    table: Annotated[
        str,
        typer.Option("--table", "-t", metavar="TABLE", help="The table, as schema.name or name."),
    ] = "",
    config: Config = DEFAULT,
    root: Root = None,
    key: Annotated[
        list[str] | None,
        typer.Option("--key", metavar="COLUMNS", help="Key columns of a new table, as a or a,b."),
    ] = None,
    no_key: Annotated[
        bool, typer.Option("--no-key", help="The new table has no key: rows can only be added.")
    ] = False,
    initial: Annotated[
        bool, typer.Option("--initial", help="The rows are the initial content of the table.")
    ] = False,
    operation: Annotated[
        str | None,
        typer.Option(
            "--operation",
            metavar="WORD",
            help="Operation of all rows: insert, update, delete or upsert.",
        ),
    ] = None,
    marker_column: Annotated[
        str | None,
        typer.Option(
            "--marker-column",
            metavar="COLUMN",
            help="Column with the operation of each row, as one of these words or as 0, 1, 2, 4. "
            "Default, without --initial and --operation: __rowMarker__.",
        ),
    ] = None,
    previous: Annotated[
        list[str] | None,
        typer.Option(
            "--previous-key",
            metavar="KEY=COLUMN",
            help="Column with the previous value of a key column, for changed keys.",
        ),
    ] = None,
    batch: Annotated[
        str | None,
        typer.Option(
            "--batch",
            metavar="NAME",
            help="Name of the batch: if it is sent again, it is published only once.",
        ),
    ] = None,
    layout: Annotated[
        str | None,
        typer.Option(
            "--layout",
            metavar="v1|v2",
            help="Layout of the files; v1 has the marker as first column, in every row.",
        ),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="Format of the landed files: parquet, csv, tsv or psv.",
        ),
    ] = None,
    codec: Annotated[
        str | None,
        typer.Option("--codec", metavar="CODEC", help="Compression: none, snappy, gzip or zstd."),
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            metavar="COLUMN=TYPE",
            help="Type of a column, such as zip=string, if the file does not define it.",
        ),
    ] = None,
    separator: Annotated[
        str | None,
        typer.Option("--separator", metavar="CHARACTER", help="Column separator of a CSV file."),
    ] = None,
    encoding: Annotated[
        str, typer.Option("--encoding", metavar="NAME", help="Encoding of a CSV file.")
    ] = "utf-8",
    null: Annotated[
        str | None,
        typer.Option(
            "--null",
            metavar="TEXT",
            help="Text that means NULL in a CSV file, in addition to empty fields.",
        ),
    ] = None,
    sheet: Annotated[
        str | None,
        typer.Option("--sheet", metavar="NAME", help="Sheet of an Excel file. Default: the first."),
    ] = None,
    partner: Annotated[
        str | None,
        typer.Option(
            "--partner", metavar="NAME", help="Name of the publisher, for _partnerEvents.json."
        ),
    ] = None,
    hold: Annotated[
        bool,
        typer.Option(
            "--hold", help="Bulk load: the mirror does not read the table before --release."
        ),
    ] = False,
    release: Annotated[
        bool, typer.Option("--release", help="Let the mirror read a table published with --hold.")
    ] = False,
    drop: Annotated[
        bool, typer.Option("--drop", help="Delete the folder of the table first, to start over.")
    ] = False,
    wait: Annotated[
        float | None,
        typer.Option(
            "--wait",
            metavar="SECONDS",
            help="Maximum time to wait for the mirror: with --drop, until it has dropped the "
            "table; before changes, until it has created it.",
        ),
    ] = None,
    give_up: Annotated[
        str | None,
        typer.Option(
            "--give-up",
            metavar="BATCH",
            help="Withdraw a batch that was started but not published.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write files into a landing zone in the form that a mirror expects.

    If a run is killed, run it again with the same --batch: no row is lost or duplicated.

    \b
    mirrorlake publish orders.csv -t sales.orders --key id --initial --root ./zone
    mirrorlake publish new.jsonl  -t sales.orders --operation upsert --batch 17 --root ./zone
    mirrorlake publish log.csv    -t sales.orders --marker-column op --root ./zone
    mirrorlake publish orders.csv -t sales.orders --key id --initial --drop --root ./zone
    mirrorlake publish new.jsonl  -t sales.orders --operation upsert --root s3://bucket/zone
    """
    from mirrorlake.app.stores import store_of
    from mirrorlake.cli import crash, logs
    from mirrorlake.cli.options import project
    from mirrorlake.cli.progress import publish_progress
    from mirrorlake.errors import UsageError
    from mirrorlake.publisher import Partner, Publisher
    from mirrorlake.publisher.input.files import InputOptions, rows_of
    from mirrorlake.publisher.locations import is_mirrored
    from mirrorlake.storage.urls import open_store

    logs.configure(verbose=False, quiet=True)
    inputs = files or []
    _check_named(table)
    if not (inputs or drop or release or give_up or hold):
        raise UsageError(
            "there is nothing to do", hint="Name files to publish, such as orders.csv."
        )
    _check_together(
        {"--key": key, "--no-key": no_key},
        {"--initial": initial, "--operation or --marker-column": operation or marker_column},
    )
    if wait is not None and initial and not drop:
        raise UsageError(
            "--wait has no effect with --initial, except with --drop",
            where="--wait",
            hint="Leave one of them out, or add --drop.",
        )
    columns = () if no_key else tuple(c for word in key or () for c in word.split(",")) or None
    text, column_types = _text(form), _pairs(types, "--type", "zip=string")
    earlier = _pairs(previous, "--previous-key", "id=old_id")
    done: list[Published] = []
    store = open_store(root) if root is not None else store_of(project(config))
    with (
        publish_progress() as on_progress,
        Publisher(
            store,
            partner=Partner(partner) if partner else None,
            codec=codec,
            reached=crash.reached,
            on_progress=on_progress,
        ) as publisher,
    ):
        named = publisher.named(table)
        if drop:
            _drop(publisher, store, named, wait)
        elif wait is not None and not initial:
            publisher.wait_for(named, lambda: is_mirrored(store, named), patience=wait)
        if give_up is not None and not publisher.give_up(named, give_up):
            raise UsageError(
                "there is no such pending batch",
                where=f"table {table}",
                hint="It may have been published already.",
            )
        if hold:
            publisher.describe(named, key=columns, layout=layout, text=text, hold=True)
        for number, file in enumerate(inputs, 1):
            reading = InputOptions(
                _types(publisher, named, column_types), separator, encoding, null, sheet
            )
            rows = rows_of(file, reading)
            name = f"{batch}/{number}" if batch and len(inputs) > 1 else batch
            if initial:
                result = publisher.load(
                    named,
                    rows,
                    key=columns,
                    batch=name,
                    types=column_types,
                    layout=layout,
                    text=text,
                )
            else:
                result = publisher.publish(
                    named,
                    rows,
                    operation=operation,
                    marker_column=marker_column,
                    previous_key=earlier,
                    key=columns,
                    batch=name,
                    types=column_types,
                    layout=layout,
                    text=text,
                )
            done.append(result)
        if release:
            publisher.release(named)
    _report(done, as_json=as_json)
    if initial and batch is None and done:
        _warn_of_repeat(done[0])


def _warn_of_repeat(first: Published) -> None:
    """Warn that initial rows for a table with files may be the same rows sent again (LZ-077)."""
    from mirrorlake.cli.output import say

    if first.files and first.files[0].number > 1:
        say(
            f"{first.table} already had files: these rows are added to them, and a key that is in "
            "both exists twice. With --batch NAME a repeated command publishes only once; "
            "--drop starts the table over."
        )


def _check_together(*opposed: Mapping[str, object]) -> None:
    """opposed: pairs of options, of which one would have no effect. Raises UsageError."""
    from mirrorlake.errors import UsageError

    for pair in opposed:
        if all(pair.values()):
            raise UsageError(
                f"{' cannot be used with '.join(pair)}",
                where=next(iter(pair)).partition(" ")[0],
                hint="Use one of them.",
            )


def _check_named(table: str) -> None:
    from mirrorlake.errors import UsageError, check_utf8
    from mirrorlake.model.table import TableId

    check_utf8(table, "the name of the table")
    if not TableId.parse(table).name:
        raise UsageError(
            "no table was given", where="--table", hint="Use, for example, --table sales.orders."
        )


def _types(publisher: Publisher, table: TableId, given: Mapping[str, str]) -> dict[str, DataType]:
    """The known types of columns: those of the table, and those given by the caller."""
    from mirrorlake.publisher.publisher import type_of

    return {name: type_of(name, kind) for name, kind in given.items()} | publisher.columns(table)


def _text(form: str | None) -> TextFormat | None:
    from mirrorlake.errors import UsageError
    from mirrorlake.landing.text.format import TextFormat

    separators = {"csv": ",", "tsv": "\t", "psv": "|"}
    if form is None or form == "parquet":
        return None
    if form not in separators:
        raise UsageError(
            f"unknown format {form!r}", where="--format", hint="Use parquet, csv, tsv or psv."
        )
    return TextFormat(extension=form, column_separator=separators[form])


def _pairs(words: Sequence[str] | None, option: str, example: str) -> dict[str, str]:
    from mirrorlake.errors import UsageError

    pairs = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        if not (name and equals and value):
            raise UsageError(
                f"{word!r} is not NAME=VALUE", where=option, hint=f"For example {example}."
            )
        pairs[name] = value
    return pairs


def _drop(publisher: Publisher, store: Store, table: TableId, wait: float | None) -> None:
    """Delete the folder; with `wait`, wait until the mirror has dropped the table (LZ-239)."""
    if wait is None:
        publisher.drop(table)
        return
    from mirrorlake.publisher.locations import is_mirrored

    publisher.drop(table, patience=wait, gone=lambda: not is_mirrored(store, table))


def _report(done: Sequence[Published], *, as_json: bool) -> None:
    from mirrorlake.cli.output import print_json, print_table

    if as_json:
        print_json({"batches": [batch.facts() for batch in done]})
    elif done:
        print_table(
            ["table", "batch", "outcome", "files", "inserts", "updates", "deletes", "upserts"],
            [
                [
                    batch.table,
                    batch.batch,
                    batch.outcome,
                    _numbers(batch),
                    *(batch.rows.get(k, 0) for k in ("insert", "update", "delete", "upsert")),
                ]
                for batch in done
            ],
        )


def _numbers(batch: Published) -> str:
    numbers = [file.number for file in batch.files]
    if len(numbers) < 2:
        return str(numbers[0]) if numbers else ""
    return f"{numbers[0]}-{numbers[-1]}"
