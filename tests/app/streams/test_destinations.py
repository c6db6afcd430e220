"""Where a stream of the API writes event files, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mirrorlake.app.streams.destinations import bucket_of, in_bucket, in_folder
from mirrorlake.app.streams.projects import ServiceFolders
from mirrorlake.app.streams.validation import WorldValidator
from mirrorlake.control.shapes.profiles import ConnectionProfile
from mirrorlake.control.shapes.streams import GcsDestinationConfig
from mirrorlake.control.states import ValidationState
from mirrorlake.errors import InvalidRequest, UsageError
from mirrorlake.events.paths import EventExtension

STREAM = "projects/p/locations/l/streams/s"
FILES = Path("/data/files")


def config(**sent: Any) -> GcsDestinationConfig:
    return GcsDestinationConfig.model_validate(sent)


@pytest.mark.clause("ST-321", "ST-333")
def test_a_configuration_becomes_a_place_a_form_and_a_rotation() -> None:
    form = {"compression": "GZIP", "schemaFileFormat": "AVRO_SCHEMA_FILE"}
    sent = config(path="/orders", fileRotationMb=5, fileRotationInterval="15s", jsonFileFormat=form)
    found = in_bucket(STREAM, "shop-events", "/a/b/", sent, FILES)
    assert found.described == "gs://shop-events/a/b/orders"
    assert (found.stream, found.extension) == (STREAM, EventExtension.JSON_GZIP)
    assert (found.rotation_bytes, found.rotation_seconds) == (5 << 20, 15.0)
    assert found.schema_file
    plain = in_bucket(STREAM, "s3://shop-events", "", config(avroFileFormat={}), FILES)
    assert (plain.described, plain.extension) == ("s3://shop-events", EventExtension.AVRO)
    assert (plain.rotation_bytes, plain.rotation_seconds) == (50 << 20, 60.0)


@pytest.mark.parametrize(
    "bucket",
    ["file:///etc", "/etc", "..", "s3://u:secret@h", "s3://a/b", "https://h/x", "a b", "a?k=v"],
)
def test_what_is_no_bucket_is_refused(bucket: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        bucket_of(bucket)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("path", ["../other", "a/../b", "a\\b", "./a"])
def test_a_path_that_leaves_its_place_is_refused(path: str) -> None:
    with pytest.raises(InvalidRequest):
        in_bucket(STREAM, "bucket", "root", config(path=path), FILES)


def test_a_folder_may_stand_for_a_bucket() -> None:
    found = in_bucket(STREAM, "file://shop", "/a", config(path="/orders"), FILES)
    assert found.location == FILES / "shop/a/orders"
    for bucket, root in (("file://..", ""), ("file://a/b", ""), ("file://shop", "../x")):
        with pytest.raises(InvalidRequest):
            in_bucket(STREAM, bucket, root, config(), FILES)


def test_rotation_has_bounds_and_a_folder_is_not_that_of_a_mirror(tmp_path: Path) -> None:
    for sent in ({"fileRotationMb": 1025}, {"fileRotationInterval": "86401s"}):
        with pytest.raises(InvalidRequest):
            in_folder(STREAM, tmp_path, config(**sent))
    (tmp_path / "mirror/Files/Mirrorlake").mkdir(parents=True)
    with pytest.raises(UsageError):
        in_folder(STREAM, tmp_path / "mirror/Tables/events", config())


def test_a_bucket_without_an_account_fails_its_validation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT"):
        monkeypatch.delenv(name, raising=False)
    profile = ConnectionProfile.model_validate({"gcsProfile": {"bucket": "az://events"}})
    validator = WorldValidator(ServiceFolders(tmp_path, tmp_path / "data"))
    (found,) = validator.profile(profile, {})
    assert found.state == ValidationState.FAILED
    assert "account must be specified" in found.message
