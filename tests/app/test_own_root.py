"""A wrong root is refused before anything is made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mirrorlake.app.mirror import Mirror
from mirrorlake.config import Project
from mirrorlake.errors import UsageError
from mirrorlake.sources.memory.database import MemoryDatabase
from mirrorlake.sources.memory.settings import MemorySettings
from tests.doubles.clock import SteppedClock

ACTS = [Mirror.plan, Mirror.apply_once, Mirror.apply_run]
FED = [Mirror.check, Mirror.capture_once, Mirror.capture_run, Mirror.run]

Act = Callable[[Mirror], object]


def refused(root: Path, act: Act) -> str:
    before = sorted(root.rglob("*"))
    source = MemorySettings(MemoryDatabase(SteppedClock())) if act in FED else None
    with pytest.raises(UsageError) as error:
        act(Mirror(Project("shop", root, source)))
    assert sorted(root.rglob("*")) == before
    return str(error.value)


@pytest.mark.parametrize("act", [*ACTS, *FED])
def test_a_root_that_holds_other_things_is_refused(tmp_path: Path, act: Act) -> None:
    (tmp_path / "photos").mkdir()
    said = refused(tmp_path, act)
    assert "holds other things, such as photos, and no landing zone" in said
    assert "Did you mean" not in said


@pytest.mark.parametrize("root", ["shop/Files/LandingZone", "shop/Files/LandingZone/t", "."])
def test_the_root_that_is_near_is_named(tmp_path: Path, root: str) -> None:
    (tmp_path / "shop/Files/LandingZone/t").mkdir(parents=True)
    (tmp_path / "shop/Files/LandingZone/t/_metadata.json").touch()
    said = refused(tmp_path / root, Mirror.plan)
    assert f"Did you mean {tmp_path / 'shop'}?" in said


@pytest.mark.parametrize("act", [*ACTS, *FED])
def test_a_root_whose_landing_zone_is_not_there_is_refused(tmp_path: Path, act: Act) -> None:
    log = tmp_path / "Tables/sales/orders/_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").touch()
    said = refused(tmp_path, act)
    assert "there are tables, such as Tables/sales/orders, and no landing zone" in said
    assert "mount it" in said


@pytest.mark.parametrize("name", ["mirrorlake.yaml", ".git", "Files"])
def test_a_root_with_nothing_but_what_belongs_there_is_taken(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    assert Mirror.open(root=tmp_path).plan() == []


def test_a_root_that_does_not_exist_yet_is_taken(tmp_path: Path) -> None:
    assert Mirror(Project("shop", tmp_path / "new")).plan() == []
    assert not (tmp_path / "new").exists()


def test_open_takes_a_project_or_a_root(tmp_path: Path) -> None:
    assert Mirror.open(root=str(tmp_path)).project.name == tmp_path.name
    with pytest.raises(UsageError, match="neither a project file nor a root"):
        Mirror.open()
    with pytest.raises(UsageError, match="or both"):
        Mirror.open("mirrorlake.yaml", root=tmp_path)
    with pytest.raises(UsageError, match="does not exist"):
        Mirror.open(root=tmp_path / "nowhere")
