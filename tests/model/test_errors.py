"""The error tree: stable codes, one shape as data, whole after a journey between processes."""

from __future__ import annotations

import errno
import importlib
import pickle
import pkgutil
from collections import Counter

import pytest

import mirrorlake
from mirrorlake import errors
from mirrorlake.errors import (
    FeedError,
    MirrorlakeError,
    OperatorError,
    SourceColumnsChanged,
    SourceGap,
    StorageUnavailable,
    TableError,
    UnknownMarker,
    UsageError,
)
from mirrorlake.mirror.faults import TableFault


def tree(root: type[MirrorlakeError]) -> list[type[MirrorlakeError]]:
    """A class of the module and all that derive from it there."""
    below = [kind for child in root.__subclasses__() for kind in tree(child)]
    return [kind for kind in [root, *below] if kind.__module__ == errors.__name__]


def below(root: type[MirrorlakeError]) -> list[type[MirrorlakeError]]:
    """All classes that derive from one, wherever they are."""
    return [kind for child in root.__subclasses__() for kind in [child, *below(child)]]


ALL = tree(MirrorlakeError)
OF_TABLES = tree(TableError)
FULL = UnknownMarker(
    "marker 3 is not 0, 1, 2 or 4",
    table="sales.orders",
    file="00000000000000000017.parquet",
    row=5,
    column="__rowMarker__",
    value="3",
    hint="Delete the file.",
)


def made(kind: type[MirrorlakeError]) -> MirrorlakeError:
    if issubclass(kind, TableError):
        return kind("it broke", table="t", file="f", row=1, column="c", value="v", hint="Mend it.")
    if issubclass(kind, FeedError):
        return kind("it broke", reason="expired", table="t", requested="1 to 2", hint="Mend it.")
    if issubclass(kind, SourceColumnsChanged):
        return kind("it broke", version=7, where="here", hint="Mend it.")
    return kind("it broke", where="here", hint="Mend it.")


def test_every_class_has_a_code_of_its_own() -> None:
    shared = [code for code, count in Counter(kind.code for kind in ALL).items() if count > 1]
    assert shared == []


@pytest.mark.parametrize("kind", ALL)
def test_every_error_class_has_a_docstring(kind: type[MirrorlakeError]) -> None:
    assert kind.__doc__


@pytest.mark.parametrize("kind", ALL)
def test_an_error_prints_what_where_and_the_hint(kind: type[MirrorlakeError]) -> None:
    error = made(kind)
    assert str(error) == f"it broke ({error.where}). Mend it."


def test_an_error_without_place_and_hint_is_one_sentence() -> None:
    assert str(SourceGap("it broke")) == "it broke."


@pytest.mark.parametrize("kind", ALL)
def test_the_facts_name_code_message_and_hint(kind: type[MirrorlakeError]) -> None:
    error = made(kind)
    facts = error.facts()
    assert (facts["code"], facts["message"], facts["hint"]) == (kind.code, str(error), "Mend it.")


@pytest.mark.clause("LZ-270")
def test_the_facts_of_a_table_error_name_file_row_column_and_value() -> None:
    facts = FULL.facts()
    assert {name: facts[name] for name in ("file", "row", "column", "value")} == {
        "file": "00000000000000000017.parquet",
        "row": 5,
        "column": "__rowMarker__",
        "value": "3",
    }


@pytest.mark.clause("LZ-270")
def test_a_table_error_prints_table_file_row_and_column() -> None:
    index = "table sales.orders, file 00000000000000000017.parquet, row 5, column __rowMarker__"
    assert str(FULL) == f"marker 3 is not 0, 1, 2 or 4 ({index}). Delete the file."


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("kind", ALL)
def test_an_error_survives_pickling(kind: type[MirrorlakeError], protocol: int) -> None:
    error = made(kind)
    arrived = pickle.loads(pickle.dumps(error, protocol))
    assert type(arrived) is kind
    assert (arrived.facts(), str(arrived), arrived.args) == (error.facts(), str(error), error.args)


@pytest.mark.parametrize("kind", OF_TABLES)
def test_a_table_error_keeps_all_fields_when_pickled(kind: type[TableError]) -> None:
    error = made(kind)
    arrived = pickle.loads(pickle.dumps(error))
    assert vars(arrived) == vars(error)


def test_an_error_class_of_another_package_survives_pickling() -> None:
    for module in pkgutil.walk_packages(mirrorlake.__path__, "mirrorlake."):
        if not module.name.endswith((".__main__", ".migrations.env")):  # which programs run
            importlib.import_module(module.name)
    added = [kind for kind in below(MirrorlakeError) if kind not in ALL]
    assert TableFault in added
    for kind in added:
        error = made(kind)
        arrived = pickle.loads(pickle.dumps(error))
        assert (type(arrived), str(arrived)) == (kind, str(error))
        assert vars(arrived) == vars(error)


def test_errors_without_a_location_survive_pickling() -> None:
    arrived = pickle.loads(pickle.dumps(UsageError("no")))
    assert (arrived.what, arrived.where, arrived.hint) == ("no", "", "")


def test_only_usage_errors_and_unavailable_systems_have_special_exit_codes() -> None:
    codes = {kind.code: kind.exit_code for kind in ALL if kind.exit_code != 1}
    assert codes == {
        "usage": 2,
        "config": 2,
        "invalid_request": 2,
        "resource_not_found": 2,
        "resource_exists": 2,
        "unavailable": 3,
        "spark_unavailable": 3,
        "source_unavailable": 3,
        "rows_moved": 3,
        "altered_while_loaded": 3,
        "slot_in_use": 3,
        "storage_unavailable": 3,
        "process_suspended": 3,
    }


def test_a_changed_type_has_the_code_of_the_original() -> None:
    assert errors.SchemaMergeFailure.code == "SchemaMergeFailure"


def test_an_error_of_a_table_waits_for_a_person() -> None:
    assert all(issubclass(kind, OperatorError) for kind in OF_TABLES)


def test_a_full_disk_becomes_a_storage_error() -> None:
    error = StorageUnavailable.of(OSError(errno.ENOSPC, "No space left on device", "/lake/file"))
    assert error is not None
    assert str(error).startswith(
        "the storage returned an error: no space left on device (/lake/file). Free"
    )
    assert StorageUnavailable.of(OSError(errno.ECONNRESET, "Connection reset by peer")) is None
