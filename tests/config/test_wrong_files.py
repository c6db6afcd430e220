"""How a wrong project file is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mirrorlake.app.mirror import Mirror
from mirrorlake.config import load
from mirrorlake.errors import ConfigError
from tests.config.project_files import SECRET, refused, write


def test_a_missing_file_names_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="mirrorlake init"):
        load(tmp_path / "mirrorlake.yaml", {})


@pytest.mark.parametrize(
    ("text", "line", "field"),
    [
        ("name: a\nroot: b\nsauce: {}\n", 3, "sauce"),
        ("name: a\nroot: b\ncapture:\n  roll_bites: 3\n", 4, "capture.roll_bites"),
        ("name: a\nroot: b\ncapture:\n  roll_seconds: -1\n", 4, "capture.roll_seconds"),
        ("name: a\nroot: b\nsource:\n  type: oracle\n  url: x\n", 4, "source.type"),
        ("name: a\nroot: b\nsource: {type: postgresql}\n", 3, "source.url"),
        ("name: a\nroot: b\nmirror:\n  deletes: none\n", 4, "mirror.deletes"),
        ("name: a\n", 1, "root"),
        ("name: a\nroot: b\nsource:\n  type: postgresql\n  url: x\n  slot: Bad Name\n", 6, "slot"),
    ],
)
def test_a_wrong_field_is_refused_with_its_line(
    tmp_path: Path, text: str, line: int, field: str
) -> None:
    error = refused(tmp_path, text)
    assert f"line {line}" in error.where
    assert field in error.where


def test_an_unknown_field_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    error = refused(tmp_path, "name: a\nroot: b\ncapture: {roll: 1}\n")
    assert "roll_bytes, roll_seconds" in error.hint


def test_text_that_is_no_yaml_is_refused_with_its_line(tmp_path: Path) -> None:
    assert "line 2" in refused(tmp_path, "name: a\nroot: b: c\n").where


def test_a_missing_variable_is_named_with_its_line(tmp_path: Path) -> None:
    error = refused(tmp_path, "name: a\nroot: ${NOWHERE}\n")
    assert "NOWHERE" in error.what
    assert "line 2" in error.where


def test_secrets_appear_in_no_error_and_no_repr(tmp_path: Path) -> None:
    text = "name: a\nroot: b\nsource:\n  type: postgresql\n  url: ${URL}\n  what: 1\n"
    error = refused(tmp_path, text, URL=f"postgresql://u:{SECRET}@h/d")
    assert SECRET not in str(error)
    good = text.replace("  what: 1\n", "")
    project = load(write(tmp_path, good), {"URL": f"postgresql://u:{SECRET}@h/d"})
    assert SECRET not in repr(project)


@pytest.mark.parametrize("value", ["", " "])
def test_an_empty_variable_is_refused_with_its_name(tmp_path: Path, value: str) -> None:
    text = "name: a\nroot: b\nsource:\n  type: postgresql\n  url: ${SHOP_URL}\n"
    with pytest.raises(ConfigError) as error:
        Mirror(load(write(tmp_path, text), {"SHOP_URL": value})).check()
    assert "SHOP_URL" in error.value.what
    assert "line 5" in error.value.where


FED = "name: a\nroot: b\nsource:\n  type: postgresql\n  url: postgresql://u:${PASSWORD}@h/d\n"


@pytest.mark.parametrize("act", [Mirror.check, Mirror.discover, Mirror.capture_once, Mirror.run])
def test_only_what_connects_needs_the_url_of_the_source(
    tmp_path: Path, act: Callable[[Mirror], object]
) -> None:
    mirror = Mirror.open(load(write(tmp_path, FED), {}))
    assert mirror.status().tables == mirror.plan() == []
    with pytest.raises(ConfigError, match=r"PASSWORD is not set .*line 5.* export PASSWORD="):
        act(mirror)
    assert not (tmp_path / "b").exists()


def test_every_other_variable_is_needed_at_once(tmp_path: Path) -> None:
    assert "SLOT" in refused(tmp_path, f"{FED}  slot: ${{SLOT}}\n").what
    assert "WHERE" in refused(tmp_path, FED.replace("root: b", "root: ${WHERE}")).what


@pytest.mark.parametrize("amount", ["lots", "2", "2gb", "0g", "1.5g", "-1g", "2g -version"])
def test_an_amount_of_memory_that_no_jvm_takes_is_refused(tmp_path: Path, amount: str) -> None:
    error = refused(tmp_path, f"name: a\nroot: b\nspark: {{driver_memory: '{amount}'}}\n")
    assert "line 3, field spark.driver_memory" in error.where
    assert "512m or 2g" in error.what


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("name: a\nroots: b\n", "root"),
        ("name: a\nroot: b\nsources: {}\n", "source"),
        ("name: a\nroot: b\ncapture: {roll_second: 1}\n", "capture.roll_seconds"),
        ("name: a\nroot: b\ndriver_memory: 3g\n", "spark.driver_memory"),
        ("name: a\nroot: b\nurl: x\n", "source.url"),
        ("name: a\nroot: b\nsource: {type: postgresql, url: x, table: [a]}\n", "source.tables"),
    ],
)
def test_a_near_miss_is_answered_with_what_was_meant(tmp_path: Path, text: str, meant: str) -> None:
    assert refused(tmp_path, text).hint.startswith(f"Did you mean {meant}?")


def test_a_far_miss_is_answered_with_no_guess(tmp_path: Path) -> None:
    assert "mean" not in refused(tmp_path, "name: a\nroot: b\nzebra: 1\n").hint


def test_an_empty_url_is_refused(tmp_path: Path) -> None:
    text = 'name: a\nroot: b\nsource:\n  type: postgresql\n  url: ""\n'
    assert "source.url" in refused(tmp_path, text).where


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mirrorlake.yaml"
    path.write_bytes(b"name: caf\xe9\nroot: b\n")
    with pytest.raises(ConfigError, match="UTF-8"):
        load(path, {})


def test_a_folder_as_project_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path, {})


@pytest.mark.parametrize(
    "line",
    [
        "[a, b]: c",
        "landing: {retention_days: 1e300}",
        "landing: {retention_days: 1.0e+300}",
        "landing: {retention_days: .inf}",
        "capture: {roll_seconds: .inf}",
        "default_schema: 2024-99-99",
        "default_schema: !unknown x",
    ],
)
def test_what_yaml_allows_and_no_setting_can_be_is_refused_with_its_line(
    tmp_path: Path, line: str
) -> None:
    assert "line 3" in refused(tmp_path, f"name: a\nroot: b\n{line}\n").where


def test_a_setting_under_both_of_its_names_is_refused(tmp_path: Path) -> None:
    text = "name: a\nroot: b\ncapture:\n  debounce_seconds: 3\n  settle_seconds: 3\n"
    error = refused(tmp_path, text)
    assert "line 5, field capture.settle_seconds" in error.where


@pytest.mark.parametrize("source", ["oracle", "{}", "{type: [1]}", "{type: {}}", "[]", "3"])
def test_a_source_of_no_type_that_there_is_is_refused(tmp_path: Path, source: str) -> None:
    assert "field source" in refused(tmp_path, f"name: a\nroot: b\nsource: {source}\n").where


def test_an_unknown_field_of_a_source_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    text = "name: a\nroot: b\nsource: {type: postgresql, url: x, extremes: {days: null}}\n"
    error = refused(tmp_path, text)
    assert error.hint.endswith("The settings here are: dates, numbers.")
    error = refused(tmp_path, text.replace("extremes", "extreme"))
    assert "The settings here are: type, url, tables, columns" in error.hint
