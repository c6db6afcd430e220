"""SQL over the tables of a root, by name, without a JVM.

DuckDB does not verify page checksums. So before a query runs, those of the columns that it uses are
verified, in all files of the tables that it names. Its plan tells what it uses: every column whose
name occurs there, for whatever reason. What is not known for certain counts as used.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import duckdb
import pyarrow as pa

from mirrorlake.delta.deletion_vectors import BrokenVector
from mirrorlake.delta.log.files import FOLDER
from mirrorlake.delta.log.first_commit import has_commit
from mirrorlake.delta.log.table_log import BrokenLog
from mirrorlake.delta.lookup import page_checksums
from mirrorlake.delta.quoting import quoted
from mirrorlake.delta.schema import UnknownColumnType
from mirrorlake.delta.table_view import UnverifiedFiles, create_view
from mirrorlake.errors import ForeignTable, UsageError, tables_like
from mirrorlake.root import true_name

_UNREADABLE = (
    duckdb.Error,
    pa.ArrowException,
    OSError,
    BrokenLog,
    BrokenVector,
    UnknownColumnType,
)
_TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"(:?)')
"""A text in JSON, and a colon if it is the name of a member."""
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
"""The name of a column that a plan contains as it is, in one piece."""
_NO_TABLE = re.compile(r'Table with name (?:"(?P<quoted>[^"]*)"|(?P<plain>\S+)) does not exist')
_LISTS = re.compile(r"\s*show\s+(all\s+)?tables\s*;?\s*", re.IGNORECASE)


def tables(root: Path) -> Iterator[tuple[str, str, Path]]:
    """Schema (`main` for none), name and path of every Delta table below `Tables`."""
    top = root / "Tables"
    for path in _tables(top, "*"):
        yield "main", true_name(path.name), path
    for path in _tables(top, "*/*"):
        yield true_name(path.parent.name), true_name(path.name), path


def _tables(top: Path, pattern: str) -> list[Path]:
    """The folders with a Delta log; a table without a version yet has none."""
    found = sorted(log.parent for log in top.glob(f"{pattern}/{FOLDER}"))
    return [path for path in found if has_commit(path)]


@dataclass(frozen=True, slots=True)
class _View:
    """A view of a table, by the schema and the name of the view."""

    table: str
    schema: str
    name: str
    path: Path
    files: UnverifiedFiles


class Views:
    """A DuckDB connection with a view for each table that a query may name. missing: messages for
    tables without a view."""

    def __init__(
        self,
        root: Path,
        query: str,
        versions: Mapping[Path, int] | None = None,
    ) -> None:
        """versions: the version to read by table path; tables without a version are then missing.
        None reads the newest version of all tables."""
        self.connection = duckdb.connect()
        self.missing: list[str] = []
        self._query, self._versions, self._views = query, versions, list[_View]()
        # Without views yet: DuckDB would look for names in them as well, and fails.
        self._names = _names(self.connection, query)
        self.connection.execute("set TimeZone = 'UTC'")
        found: dict[tuple[str, str], list[tuple[str, str, Path]]] = {}
        for table in tables(root):
            if _is_named(table[1], query):
                found.setdefault((table[0].casefold(), table[1].casefold()), []).append(table)
        for alike in found.values():
            if len(alike) > 1:
                paths = " and ".join(str(path) for _schema, _name, path in alike)
                self.missing.append(
                    f"the names of {paths} differ only in case, so SQL cannot distinguish them; "
                    "read one by its folder, with delta-rs or Spark"
                )
            else:
                self._add(*alike[0])

    def _add(self, schema: str, name: str, path: Path) -> None:
        version = None if self._versions is None else self._versions.get(path)
        if self._versions is not None and version is None:
            self.missing.append(f"the table at {path} is not part of the cut")
            return
        try:
            self.connection.execute(f"create schema if not exists {quoted(schema)}")
            view = f"{quoted(schema)}.{quoted(name)}"
            files = create_view(self.connection, view, path, version)
        except _UNREADABLE as error:
            self.missing.append(f"the table at {path} cannot be read: {_first_line(error)}")
        else:
            self._views.append(_View(_named(schema, name), schema, name, path, files))

    def verify(self) -> None:
        """Verify the pages that the query may read. Raises ForeignTable, duckdb.Error."""
        plan = _plan(self.connection, self._query)
        ((threads,),) = self.connection.execute("select current_setting('threads')").fetchall()
        for view in self._views:
            if plan is None or self._may_read(view):
                stored = view.files.columns
                columns = {name for name in stored if plan is None or _may_use(plan, name)}
                _verify(view, columns, int(threads))

    def _may_read(self, view: _View) -> bool:
        if self._names is None:
            return True
        has_schema = view.schema == "main" or _is_named(view.schema, self._query)
        return has_schema and view.name.casefold() in self._names


def run(
    root: Path,
    query: str,
    more: Mapping[str, pa.Table] = MappingProxyType({}),
    versions: Mapping[Path, int] | None = None,
    *,
    verify: bool = True,
) -> duckdb.DuckDBPyRelation | None:
    """The result of a query; None for a statement without a result.

    more: additional tables by name; versions: as in `Views`; verify: verify before what the query
    uses. `show tables` lists the tables of all schemas with the names to use in a query. Raises
    UsageError, and ForeignTable for a damaged file.
    """
    if _LISTS.fullmatch(query):
        return _listed(root)
    views = Views(root, query, versions)
    for name, rows in more.items():
        views.connection.register(name, rows)
    try:
        if not views.connection.extract_statements(query):
            raise UsageError(
                "the query contains no statement",
                where="the query",
                hint="`show tables` lists the tables, and `select * from TABLE` reads one.",
            )
        if verify:
            views.verify()
        return views.connection.sql(query)
    except duckdb.Error as error:
        raise UsageError(
            "; ".join([_first_line(error), *views.missing]),
            where="the query",
            hint=_hint(root, str(error)),
        ) from error


def fetched(result: duckdb.DuckDBPyRelation) -> list[tuple[Any, ...]]:
    """The rows of a result. Raises UsageError."""
    try:
        return list(result.fetchall())
    except duckdb.Error as error:
        raise UsageError(_first_line(error), where="the query") from error


def _listed(root: Path) -> duckdb.DuckDBPyRelation:
    found = [(_named(schema, name), str(path)) for schema, name, path in tables(root)]
    names, paths = [name for name, _ in found], [path for _, path in found]
    columns = {"table": pa.array(names, pa.string()), "path": pa.array(paths, pa.string())}
    return duckdb.connect().from_arrow(pa.table(columns))


def _named(schema: str, name: str) -> str:
    return name if schema == "main" else f"{schema}.{name}"


def _plan(connection: duckdb.DuckDBPyConnection, query: str) -> str | None:
    """The texts in the plan of a query, in lower case; None if it has none, or may do more than it
    tells. Raises duckdb.Error for a wrong query.

    It is the physical plan: that before it has the names of columns as the views name them.
    """
    statements = connection.extract_statements(query)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        return None
    try:
        found = connection.execute(f"explain (format json) {statements[0].query}").fetchall()
    except (duckdb.BinderException, duckdb.CatalogException):
        raise
    except duckdb.Error:
        return None
    texts = (text for _kind, plan in found for text in _TEXT.findall(plan))
    return "\n".join(text for text, colon in texts if not colon).casefold()


def _names(connection: duckdb.DuckDBPyConnection, query: str) -> frozenset[str] | None:
    """The names of the tables in a query, without their schemas, in lower case; None if unknown."""
    try:
        return frozenset(name.casefold() for name in connection.get_table_names(query))
    except duckdb.Error:
        return None


def _may_use(plan: str, column: str) -> bool:
    return not _PLAIN.fullmatch(column) or column.casefold() in plan


def _verify(view: _View, columns: Collection[str], threads: int) -> None:
    """Verify these columns in all files of a view. Raises ForeignTable."""
    if not columns:
        return
    pool = ThreadPoolExecutor(threads, thread_name_prefix="checksums")
    try:
        for path, done in [
            (path, pool.submit(page_checksums.verify, path, columns)) for path in view.files.paths
        ]:
            try:
                done.result()
            except page_checksums.DamagedPage as error:
                raise _damaged(view, str(error)) from error
            except FileNotFoundError as error:
                raise _damaged(view, f"{path.name} is missing") from error
            except (pa.ArrowException, OSError) as error:
                raise _damaged(
                    view, f"{path.name} cannot be read ({type(error).__name__})"
                ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _damaged(view: _View, what: str) -> ForeignTable:
    return ForeignTable(
        f"a file of the Delta table at {view.path} is lost or damaged: {what}",
        table=view.table,
        hint=f"Restore the file, or run `mirrorlake reset {view.table}` to rebuild the table.",
    )


def _hint(root: Path, said: str) -> str:
    """What to write instead of a query with this error of DuckDB."""
    if unknown := _NO_TABLE.search(said):
        known = (_named(schema, name) for schema, name, _ in tables(root))
        return tables_like(unknown["quoted"] or unknown["plain"], known, "none yet")
    _, _, near = said.partition("\nCandidate bindings: ")
    return f"Near to it are: {near.splitlines()[0]}." if near else "The dialect is that of DuckDB."


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _is_named(name: str, query: str) -> bool:
    """Whether a query may refer to this table: it contains the name as a word, quoted or not."""
    word = re.escape(name.replace('"', '""'))
    return re.search(rf"(?<!\w){word}(?!\w)", query, re.IGNORECASE) is not None
