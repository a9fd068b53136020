"""The `specbench` command: one thin file per command, registered here."""

from __future__ import annotations

import errno
import importlib
import sys
from typing import Any, Final

import typer

from specbench import __version__
from specbench.cli.errors import CliError
from specbench.cli.streams import leads_nowhere, outlive_readers
from specbench.verdict.exit_codes import ExitCode

COMMANDS: Final = (
    "sweep",
    "parity",
    "plan",
    "report",
    "gate",
    "compare",
    "calibrate",
    "doctor",
    "init",
    "schema",
    "workload",
    "engines",
)
"""Modules of `specbench.cli`; each has ``register(app)``."""


def build(only: str | None = None) -> typer.Typer:
    """The command-line application.

    Args:
        only: a command that alone is needed: the others' modules are not imported, which takes most of a start.
    """
    app = typer.Typer(
        name="specbench",
        help="Does speculative decoding pay for this model, this traffic and these machines?",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback(invoke_without_command=True)
    def _root(
        version: bool = typer.Option(False, "--version", help="Print the version and exit.", is_eager=True),
    ) -> None:
        if version:
            typer.echo(f"specbench {__version__}")
            raise typer.Exit

    for name in [only] if only is not None else COMMANDS:
        importlib.import_module(f"specbench.cli.{name}").register(app)
    return app


def main(argv: list[str] | None = None) -> Any:
    """Run the command line; every foreseen error is one message on stderr and its exit code."""
    if argv is None:
        outlive_readers()
    words = sys.argv[1:] if argv is None else argv
    try:
        build(words[0] if words and words[0] in COMMANDS else None)(args=argv)
    except CliError as error:
        typer.secho(f"error: {error}", err=True, fg=typer.colors.RED)
        sys.exit(int(error.exit_code))
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        leads_nowhere(sys.stdout)
        typer.secho(f"error: cannot write the output: {error.strerror}", err=True, fg=typer.colors.RED)
        sys.exit(int(ExitCode.ENVIRONMENT))
    except KeyboardInterrupt:
        sys.exit(int(ExitCode.INTERRUPTED))
