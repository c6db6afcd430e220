"""`mirrorlake init`"""

from __future__ import annotations

from typing import Annotated

import typer

from mirrorlake.cli.options import DEFAULT, Config
from mirrorlake.cli.output import say


def init(
    url: Annotated[
        str,
        typer.Argument(
            help="URL of the database, as postgresql://user@host/database; or ${VARIABLE}, an "
            "environment variable that contains it."
        ),
    ] = "${DATABASE_URL}",
    name: Annotated[str, typer.Option(help="Name of the mirror.")] = "mirror",
    root: Annotated[
        str | None, typer.Option(help="Folder or URL for the landing zone and the tables.")
    ] = None,
    config: Config = DEFAULT,
) -> None:
    """Create a project file to start from.

    \b
    mirrorlake init '${SHOP_URL}' --name shop
    mirrorlake init postgresql://postgres@localhost/shop --name shop --root ./lake
    """
    import json

    from mirrorlake.config import TEMPLATE
    from mirrorlake.errors import UsageError, unwritable

    _check_url(url)
    text = TEMPLATE.format(
        name=json.dumps(name), root=json.dumps(root or f"./{name}"), url=json.dumps(url)
    )
    try:
        with config.open("x") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(
            "the file already exists", where=str(config), hint="Choose another with --config."
        ) from None
    except OSError as error:
        raise unwritable(config, error.strerror or str(error)) from error
    say(f"Wrote {config}. Next: mirrorlake check, then mirrorlake run.")


def _check_url(url: str) -> None:
    """Raises UsageError for a URL that contains a secret, or may contain one because it cannot be
    parsed."""
    import re

    from mirrorlake.errors import UsageError

    if re.fullmatch(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}", url):
        return
    hint = (
        "Set the URL in an environment variable and pass its name: "
        "mirrorlake init '${DATABASE_URL}'."
    )
    # A variable inside the URL is replaced by a word; the text around it is checked.
    given = _parts(re.sub(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}", "", url))
    if given is None:
        raise UsageError("the URL of the database is not valid", where="init", hint=hint)
    if any(given.get(part) for part in _SECRET):
        raise UsageError(
            "the URL contains a password, which must not be stored in a project file",
            where="init",
            hint=hint,
        )


_SECRET = ("password", "sslpassword", "passfile", "oauth_client_secret", "options")
"""Parts of a URL that are secret, or that may contain anything."""


def _parts(url: str) -> dict[str, object] | None:
    """The parts of the URL; None if it is not certainly a URL."""
    import re

    plain = re.fullmatch(
        r"postgres(ql)?://([\w.%-]*@)?([\w.,%:\[\]-]*)(/[\w.%-]*)?(\?[^@\s]*)?", url
    )
    try:
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict
    except ImportError:
        # Without libpq's parser, only a URL without parameters certainly contains no secret.
        return {} if plain and not plain[5] else None
    try:
        given = conninfo_to_dict(url)
    except ProgrammingError:
        return None
    if "://" in url and not plain and not given.get("password"):
        return None  # libpq would find parts of a password in host, port or database
    return dict(given)
