"""`mirrorlake serve`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mirrorlake.cli.options import LogJson, Verbose

FOLDER = Path("mirrorlake-streams")
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def serve(
    folder: Annotated[
        Path, typer.Option("--folder", metavar="FOLDER", help="Where the service keeps its state.")
    ] = FOLDER,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="FOLDER", help="What streams write; default: FOLDER/data."),
    ] = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port to listen on; 0: a free one.")] = 8765,
    database: Annotated[
        str | None,
        typer.Option(
            "--database",
            metavar="URL",
            envvar="MIRRORLAKE_DATABASE",
            help="Keep streams in this database, a URL of SQLAlchemy, instead of a file.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", "-c", metavar="FILE", help="Run the mirrors of this project file too."
        ),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option("--spark-master", help="Spark to apply with; default: local[*]."),
    ] = None,
    jars: Annotated[
        Path | None, typer.Option("--spark-jars", metavar="FOLDER", help="Folder of jars.")
    ] = None,
    driver_memory: Annotated[
        str | None, typer.Option("--spark-memory", help="Memory of Spark's driver; default: 2g.")
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option("--tls-certificate", metavar="FILE", help="PEM; for HTTPS.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="PEM; for HTTPS.")
    ] = None,
    no_apply: Annotated[
        bool,
        typer.Option("--no-apply", help="Only capture; `mirrorlake apply` runs elsewhere."),
    ] = False,
    no_token: Annotated[
        bool, typer.Option("--no-token", help="Answer without a token; on loopback only.")
    ] = False,
    verbose: Verbose = False,
    log_json: LogJson = False,
) -> None:
    """Run streams and serve the streams API until stopped.

    The token for clients is in FOLDER/token, unless MIRRORLAKE_TOKEN is set.

    \b
    mirrorlake serve
    mirrorlake serve --port 9000 --folder /var/lib/mirrorlake
    mirrorlake serve --config mirrorlake.yaml
    """
    from mirrorlake.cli import logs
    from mirrorlake.cli.output import say
    from mirrorlake.errors import UsageError

    if host not in LOOPBACK and (no_token or certificate is None or key is None):
        raise UsageError(
            "an address that other machines reach needs a token and TLS",
            where=f"--host {host}",
            hint="Give --tls-certificate and --tls-key, and leave out --no-token.",
        )
    if key is not None and certificate is None:
        raise UsageError(
            "without a certificate the service would answer on plain HTTP",
            where="--tls-key",
            hint="Give --tls-certificate too, or leave out --tls-key.",
        )
    prepare = logs.configure(verbose=verbose, as_json=log_json)
    from mirrorlake.app import extras

    with extras.needed("`mirrorlake serve`"):
        from mirrorlake.app.streams.projects import ServiceFolders
        from mirrorlake.server.listen import Listening, listen
    from mirrorlake.config import load_all
    from mirrorlake.spark.settings import SparkSettings

    listed = load_all(config) if config else []
    if listed and (master or jars or driver_memory):
        raise UsageError(
            "all mirrors share one Spark, and the project file has its settings",
            where="serve",
            hint="Set them in the section spark of the file, and leave out --spark-master, "
            "--spark-jars and --spark-memory.",
        )
    spark = SparkSettings(
        master=master or "local[*]",
        jars=jars.absolute() if jars else None,
        driver_memory=driver_memory or "2g",
    )
    if listed:
        spark = listed[0].spark
    where = folder.absolute()
    places = ServiceFolders(where, (data or where / "data").absolute(), spark)
    listening = Listening(host, port, certificate, key, needs_token=not no_token)
    listen(
        places,
        listening,
        say,
        database=database,
        prepare=prepare,
        applies=not no_apply,
        listed=listed,
        file=str(config or ""),
    )
