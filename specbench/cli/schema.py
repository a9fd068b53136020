"""``specbench schema``: the JSON Schema of a config file, for editors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specbench.cli.errors import CliError
from specbench.config.schema import schema_text


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def schema(
        out: Annotated[Path | None, typer.Option("--out", "-o", help="Write it to this file.")] = None,
    ) -> None:
        """Print the JSON Schema of a config file."""
        if out is None:
            typer.echo(schema_text(), nl=False)
            return
        try:
            out.write_text(schema_text(), encoding="utf-8")
        except OSError as error:
            raise CliError(f"{out}: cannot be written: {error.strerror or error}") from None
        typer.echo(f"wrote {out}")
