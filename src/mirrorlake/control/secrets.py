"""Secrets of profiles: removed from the stored resources and kept in a file that only this user can
read.

A secret is input-only (ST-324). It is either sent, and stored in one file with mode 0600, or given
as a reference `env:MIRRORLAKE_SECRET_...`, and read from the environment when used. Other variables
cannot be referenced, so that the right to write profiles does not give access to the environment.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr
from pydantic.alias_generators import to_camel, to_snake

from mirrorlake.errors import InvalidRequest, StorageUnavailable

_REFERENCE = re.compile(r"env:(MIRRORLAKE_SECRET_[A-Z0-9_]{1,100})")
REFERENCE_PREFIX = "secret_manager_stored_"


def secrets_of(shape: BaseModel, path: str = "") -> Iterator[tuple[str, str]]:
    """The path of each secret that is set, in lower camel case, with the secret."""
    for name, field in type(shape).model_fields.items():
        value = getattr(shape, name)
        here = f"{path}.{field.alias or name}".lstrip(".")
        if isinstance(value, SecretStr):
            yield here, value.get_secret_value()
        elif isinstance(value, BaseModel):
            yield from secrets_of(value, here)


def without_secrets(shape: BaseModel) -> dict[str, Any]:
    """The shape as JSON, without secrets; `*_set` fields show which ones are set."""
    found: dict[str, Any] = {}
    for name, field in type(shape).model_fields.items():
        value, alias = getattr(shape, name), field.alias or name
        if isinstance(value, BaseModel):
            found[alias] = without_secrets(value)
        elif value is not None and not isinstance(value, SecretStr):
            plain = shape.model_dump(mode="json", by_alias=True, include={name})
            found[alias] = plain[alias]
        elif isinstance(value, SecretStr) and f"{name}_set" in type(shape).model_fields:
            found[f"{alias}Set"] = True
    return found


def check_references(shape: BaseModel) -> None:
    """Raises InvalidRequest for a reference to any other variable, and for one beside the secret
    itself, of which one would not be used."""
    for path, reference in references_of(shape):
        variable_of(reference)
        if any(path == given for given, _secret in secrets_of(shape)):
            name = path.rpartition(".")[2]
            stored = to_camel(f"{REFERENCE_PREFIX}{to_snake(name)}")
            raise InvalidRequest(
                f"only one of {name} and {stored} may be set",
                where=path,
                hint=f"Leave one of them out. An update that sends {name} names {stored} in "
                "updateMask too.",
            )


def references_of(shape: BaseModel, path: str = "") -> Iterator[tuple[str, str]]:
    """The path of each secret that is given as a reference, with the reference."""
    for name, field in type(shape).model_fields.items():
        value = getattr(shape, name)
        if isinstance(value, BaseModel):
            yield from references_of(value, f"{path}.{field.alias or name}".lstrip("."))
        elif name.startswith(REFERENCE_PREFIX) and value:
            yield f"{path}.{to_camel(name.removeprefix(REFERENCE_PREFIX))}".lstrip("."), value


def variable_of(reference: str) -> str:
    """The environment variable that a reference names. Raises InvalidRequest."""
    found = _REFERENCE.fullmatch(reference)
    if found is None:
        raise InvalidRequest(
            "the reference does not name a secret",
            where="secretManagerStoredPassword",
            hint="Write env:MIRRORLAKE_SECRET_NAME, and set this variable where "
            "`mirrorlake serve` runs.",
        )
    return found[1]


@contextmanager
def _translated() -> Iterator[None]:
    """Translates errors of the file system and of the file's content to StorageUnavailable."""
    try:
        yield
    except (OSError, ValueError, AttributeError, TypeError) as error:
        reason = (error.strerror or "failed").lower() if isinstance(error, OSError) else "damaged"
        raise StorageUnavailable(
            f"the secrets of the profiles cannot be read or written: {reason}",
            where=f"{SecretFile.NAME} in the folder of `mirrorlake serve`",
            hint="Check that the file can be read and written, and that its disk has space.",
        ) from None


class SecretFile:
    """All secrets by profile name and path. Safe for threads of one process."""

    NAME = "secrets.json"

    def __init__(self, folder: Path) -> None:
        self._file = folder / self.NAME
        self._lock = threading.Lock()

    def of(self, profile: str) -> dict[str, str]:
        """The secrets of a profile by path. Raises StorageUnavailable."""
        with self._lock, _translated():
            return dict(self._read().get(profile, {}))

    def put(self, profile: str, secrets: Mapping[str, str]) -> None:
        """Replace all secrets of a profile. Raises StorageUnavailable."""
        with self._lock, _translated():
            found = self._read()
            found.pop(profile, None)
            if secrets:
                found[profile] = dict(secrets)
            self._write(found)

    def _read(self) -> dict[str, dict[str, str]]:
        try:
            found: dict[str, dict[str, str]] = json.loads(self._file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        return found

    def _write(self, content: Mapping[str, Any]) -> None:
        write_private(self._file, json.dumps(content))


def write_private(path: Path, text: str) -> None:
    """Replace a file that only this user can read, atomically. Raises OSError."""
    # Created with these permissions, so that nobody else can read it at any moment.
    staged = path.with_name(f"_{path.name}")
    staged.unlink(missing_ok=True)
    number = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(number, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    staged.replace(path)
