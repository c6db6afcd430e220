"""Reads event files by Spark's own readers and by Avro's own tools, in one JVM.

Argument: a folder that has of each source an Avro file, a file of JSON, and the schema of this as
Spark has it. What is read is written beside each: by Spark as Arrow, by the tools as their JSON.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from mirrorlake.spark.session import jars
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.spark.settings import SparkSettings

AVRO = "org.apache.spark:spark-avro_2.13:4.1.1"
TOOLS = "org.apache.avro:avro-tools:1.12.0"
INFERRED, GIVEN, BY_TOOLS = ".inferred", ".given", ".tools"


def keep(frame: DataFrame, path: Path) -> None:
    table = frame.toArrow()
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def by_spark(session: SparkSession, folder: Path) -> None:
    for path in sorted(folder.glob("*.avro")):
        frame = session.read.format("avro").option("recursiveFieldMaxDepth", "4").load(str(path))
        keep(frame, path.with_suffix(f"{path.suffix}{INFERRED}"))
    for path in sorted(folder.glob("*.jsonl")):
        schema = path.with_suffix(".ddl").read_text()
        keep(session.read.json(str(path)), path.with_suffix(f"{path.suffix}{INFERRED}"))
        keep(session.read.schema(schema).json(str(path)), path.with_suffix(f"{path.suffix}{GIVEN}"))


def by_tools(session: SparkSession, folder: Path) -> None:
    """`avro-tools tojson`, with classes of its own: those of Spark are others."""
    session.sparkContext._jsc.addJar(f"ivy://{TOOLS}?transitive=false")
    name = "{}_{}-{}.jar".format(*TOOLS.split(":"))
    jvm: Any = session._jvm
    gateway: Any = session.sparkContext._gateway
    urls = gateway.new_array(jvm.java.net.URL, 1)
    urls[0] = jvm.java.io.File(str(jars.cache() / "jars" / name)).toURI().toURL()
    loader = jvm.java.net.URLClassLoader(urls, jvm.java.lang.ClassLoader.getPlatformClassLoader())
    jvm.java.lang.Thread.currentThread().setContextClassLoader(loader)
    tool = loader.loadClass("org.apache.avro.tool.DataFileReadTool")
    made = tool.getConstructor(gateway.new_array(jvm.java.lang.Class, 0))
    reader = made.newInstance(gateway.new_array(jvm.java.lang.Object, 0))
    (run,) = [one for one in tool.getMethods() if one.getName() == "run"]
    for path in sorted(folder.glob("*.avro")):
        out = jvm.java.io.PrintStream(f"{path}{BY_TOOLS}", "UTF-8")
        arguments = gateway.new_array(jvm.java.lang.Object, 4)
        arguments[1] = arguments[2] = out
        arguments[3] = jvm.java.util.List.of(str(path))
        assert run.invoke(reader, arguments) == 0
        out.close()


def main() -> None:
    folder = Path(sys.argv[1])
    conf = jars.configuration(SparkSettings(master="local[1]"))
    packages, excluded = conf["spark.jars.packages"], conf["spark.jars.excludes"]
    more = {
        "spark.jars.packages": f"{packages},{AVRO}",
        "spark.jars.excludes": f"{excluded},org.tukaani:xz",
        # Without it Spark refuses files that have a time of day.
        "spark.sql.timeType.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
    }
    with Spark.start(SparkSettings(master="local[1]", conf=more)) as spark:
        by_spark(spark.session, folder)
        by_tools(spark.session, folder)


if __name__ == "__main__":
    main()
