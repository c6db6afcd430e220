"""Where a stream writes: folders below the data folder of the service, and event files."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

from mirrorlake.app.own_root import check_apart
from mirrorlake.capture.events.settings import MIB, EventsSettings
from mirrorlake.control.shapes.base import seconds
from mirrorlake.control.shapes.streams import EventFilesConfig, JsonCompression, SchemaFileFormat
from mirrorlake.errors import InvalidRequest
from mirrorlake.events.paths import EventExtension
from mirrorlake.storage.store import UnsafePath, checked
from mirrorlake.storage.urls import StorageLocation

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{1,221}"
_BUCKET = re.compile(rf"(?:(gs|s3|az)://)?({_NAME})")
_FOLDER = re.compile(rf"file://({_NAME})")
"""A folder in the place of a bucket, so that the original's clients need no cloud."""
_MOST_MEGABYTES, _LONGEST_SECONDS = 1024, 86_400


def in_folder(stream: str, folder: Path, config: EventFilesConfig) -> EventsSettings:
    """Event files in a folder. Raises InvalidRequest, and UsageError for the root of a mirror."""
    check_apart(folder)
    return _settings(stream, folder, "", config)


def in_bucket(
    stream: str, bucket: str, root: str, config: EventFilesConfig, files: Path
) -> EventsSettings:
    """Event files in a bucket: of Google Cloud Storage, unless it is a URL that says otherwise;
    `file://NAME` is a folder below `files`. Raises InvalidRequest, UsageError."""
    if (folder := folder_of(bucket)) is not None:
        return in_folder(stream, below(files, folder, root, config.path), config)
    path = "/".join(part for one in (root, config.path) for part in one.split("/") if part)
    try:
        _ = path and checked(path)
    except UnsafePath:
        raise InvalidRequest(
            "rootPath and path do not name a place in the bucket",
            where="gcsProfile.rootPath",
            hint="Write names with / between them, as in shop/orders.",
        ) from None
    return _settings(stream, bucket_of(bucket), path, config)


def folder_of(bucket: str) -> str | None:
    """The name of a folder that stands for a bucket; None for a bucket."""
    found = _FOLDER.fullmatch(bucket)
    return found[1] if found else None


def bucket_of(text: str) -> StorageLocation:
    """Raises InvalidRequest."""
    found = _BUCKET.fullmatch(text)
    if found is None:
        raise InvalidRequest(
            "the bucket is not a name or a URL of a bucket",
            where="gcsProfile.bucket",
            hint="Write the name of a bucket of Google Cloud Storage, s3://BUCKET, az://BUCKET, or "
            "file://NAME for a folder.",
        )
    return StorageLocation(f"{found[1] or 'gs'}://{found[2]}")


def _settings(
    stream: str, location: StorageLocation | Path, path: str, config: EventFilesConfig
) -> EventsSettings:
    rotation = seconds(config.file_rotation_interval or "0s")
    if config.file_rotation_mb > _MOST_MEGABYTES or rotation > _LONGEST_SECONDS:
        raise InvalidRequest(
            f"files are closed at {_MOST_MEGABYTES} MB and after a day at the latest",
            where="fileRotationMb, fileRotationInterval",
            hint="Send less; 0 is the default.",
        )
    defaults = EventsSettings(stream, location)
    json = config.json_file_format
    zipped = json is not None and json.compression is JsonCompression.GZIP
    return EventsSettings(
        stream,
        location,
        path,
        extension=(
            EventExtension.AVRO
            if json is None
            else EventExtension.JSON_GZIP
            if zipped
            else EventExtension.JSON
        ),
        rotation_bytes=config.file_rotation_mb * MIB or defaults.rotation_bytes,
        rotation_seconds=rotation or defaults.rotation_seconds,
        schema_file=json is not None
        and json.schema_file_format is SchemaFileFormat.AVRO_SCHEMA_FILE,
    )


def below(data: Path, *parts: str) -> Path:
    """A folder below the data folder. Raises InvalidRequest for a path that would leave it."""
    names = [name for part in parts for name in PurePosixPath(f"/{part}").parts[1:]]
    if not names or any(name in ("..", ".") or len(name.encode()) > 200 for name in names):
        raise InvalidRequest(
            "rootPath and path do not name a folder below the data folder",
            where="fileSystemProfile.rootPath",
            hint="Write folders with / between them, as in shop/orders, without dots alone.",
        )
    path = data.joinpath(*names)
    if not path.resolve().is_relative_to(data.resolve()):
        raise InvalidRequest(
            "rootPath and path lead out of the data folder, through a link",
            where="fileSystemProfile.rootPath",
            hint="Name another folder.",
        )
    return path
