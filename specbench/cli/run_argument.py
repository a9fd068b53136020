"""A run directory as an argument, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from specbench.cli.errors import CliError
from specbench.runs.files import RunFileError
from specbench.verdict.exit_codes import ExitCode

RunArgument = Annotated[Path, typer.Argument(help="A run directory.", show_default=False)]


@contextmanager
def readable(*runs: Path) -> Iterator[None]:
    """Tell what cannot be read of runs: a folder that is none is bad usage, a damaged run is not.

    Raises:
        CliError: something of a run could not be read or written.
    """
    try:
        yield
    except RunFileError as error:
        are_runs = all((run / "manifest.json").exists() for run in runs)
        raise CliError(str(error), ExitCode.ENVIRONMENT if are_runs else ExitCode.USAGE) from error
