"""Compiles src/mirrorlake/spark/session/jvm/*.scala into the jar beside them.

By the Scala compiler among Spark's jars, so that a Java runtime is enough. The same sources, Spark
and Delta give the same bytes. Prints the checksum, which belongs into log_store.py.

    .venv/bin/python scripts/build-log-store.py [FILE]
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pyspark

from mirrorlake.spark.session import jars, log_store

EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of every member: the oldest that a jar can hold."""


def build(target: Path) -> None:
    """Compile the sources into the jar `target`."""
    sources = sorted(log_store.JAR.parent.glob("*.scala"))
    spark = Path(pyspark.__path__[0], "jars")
    (storage,) = (jars.cache() / "jars").glob("io.delta_delta-storage-*.jar")
    with tempfile.TemporaryDirectory() as folder:
        compiler = ["java", "-cp", f"{spark}/*", "scala.tools.nsc.Main", "-usejavacp"]
        paths = ["-cp", f"{spark}/*:{storage}", "-release", "17", "-d", folder]
        subprocess.run([*compiler, *paths, *map(str, sources)], check=True)
        classes = {
            str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(Path(folder).rglob("*.class"))
        }
    manifest = f"Manifest-Version: 1.0\nSources: {digest(sources)}\n\n"
    with zipfile.ZipFile(target, "w") as jar:  # uncompressed: zlib differs between machines
        for name, content in {"META-INF/MANIFEST.MF": manifest.encode(), **classes}.items():
            jar.writestr(zipfile.ZipInfo(name, EPOCH), content)


def digest(sources: list[Path]) -> str:
    """The checksum of the sources, in their order."""
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else log_store.JAR
    build(target)
    print(hashlib.sha256(target.read_bytes()).hexdigest())  # noqa: T201
