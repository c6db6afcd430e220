"""Reads event files by Spark's own readers, in a JVM of its own; prints what it finds as JSON.

Arguments: an Avro file, a file of JSON, and columns of the payload.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

from mirrorlake.spark.session import jars
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.spark.settings import SparkSettings

AVRO = "org.apache.spark:spark-avro_2.13:4.1.1"
MICROS = """map('timestampFormat', "yyyy-MM-dd'T'HH:mm:ss.SSSSSSX")"""
TOOLS = "org.apache.avro:avro-tools:1.12.0"


def events(session: SparkSession, form: str, path: str, columns: list[str]) -> list[dict[str, Any]]:
    reader = session.read.format(form)
    if form == "avro":
        reader = reader.option("recursiveFieldMaxDepth", "4")
    frame = reader.load(path)
    chosen = [
        "uuid",
        "unix_millis(to_timestamp(source_timestamp)) as source_timestamp",
        "source_metadata.log_position as log_position",
        *(f"to_json(struct(payload.{name}), {MICROS}) as {name}" for name in columns),
    ]
    return [row.asDict() for row in frame.selectExpr(*chosen).collect()]


def main() -> None:
    avro, lines, *columns = sys.argv[1:]
    conf = jars.configuration(SparkSettings(master="local[1]"))
    packages, excluded = conf["spark.jars.packages"], conf["spark.jars.excludes"]
    more = {
        "spark.jars.packages": f"{packages},{AVRO}",
        "spark.jars.excludes": f"{excluded},org.tukaani:xz",
        # Without it Spark refuses files that have a time of day.
        "spark.sql.timeType.enabled": "true",
    }
    with Spark.start(SparkSettings(master="local[1]", conf=more)) as spark:
        facts = {
            "avro": events(spark.session, "avro", avro, columns),
            "json": events(spark.session, "json", lines, columns),
        }
        # Last, because its classes are not those of Spark.
        spark.session.sparkContext._jsc.addJar(f"ivy://{TOOLS}?transitive=false")
    name = "{}_{}-{}.jar".format(*TOOLS.split(":"))
    facts["tools"] = str(jars.cache() / "jars" / name)
    sys.stdout.write(json.dumps(facts, default=str))


if __name__ == "__main__":
    main()
