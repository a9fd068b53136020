"""``specbench engines``: what each engine can do about speculation, by version."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console

from specbench.cli.engines_view import show_engine
from specbench.cli.errors import CliError
from specbench.engines.capabilities import TABLES, Capabilities, capabilities
from specbench.engines.capabilities.schema import near, parse_version

SCHEMA = "specbench.engines/1"


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def engines(
        engine: Annotated[
            str | None, typer.Option("--engine", "-e", help="vllm or sglang; both if absent.")
        ] = None,
        version: Annotated[
            str | None, typer.Option("--version", help="The engine's version; the newest known if absent.")
        ] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON, with sources.")] = False,
    ) -> None:
        """List the speculative methods and settings of an engine's version; start nothing."""
        shown = [capabilities(name, version) for name in _chosen(engine, version)]
        if as_json:
            data = {"schema": SCHEMA, "engines": [engine_data(known) for known in shown]}
            typer.echo(msgspec.json.format(msgspec.json.encode(data), indent=2).decode())
            return
        console = Console(highlight=False, markup=False, emoji=False)
        for number, known in enumerate(shown):
            if number:
                console.print()
            show_engine(known, console)


def _chosen(engine: str | None, version: str | None) -> tuple[str, ...]:
    if version is not None and parse_version(version) is None:
        raise CliError(f"--version: {version!r} is no version: write it like {TABLES['vllm'].newest}")
    if engine is None:
        if version is not None:
            raise CliError("--version needs --engine: a version is one of an engine")
        return tuple(TABLES)
    if engine.lower() not in TABLES:
        hint = near(engine.lower(), TABLES) or f"use {' or '.join(TABLES)}"
        raise CliError(f"--engine: there is no table of {engine!r}: {hint}")
    return (engine.lower(),)


def engine_data(known: Capabilities) -> dict[str, Any]:
    """Everything about one engine's version as data; spans are ``since`` (included), ``until`` (excluded)."""
    table = known.table
    here, flags = set(known.settings), set(known.flags)
    return {
        "engine": table.engine,
        "version": known.version_text,
        "newest": table.newest,
        "methods": [msgspec.to_builtins(method) for method in known.methods],
        "settings": [msgspec.to_builtins(setting) for setting in known.settings],
        "flags": [msgspec.to_builtins(flag) for flag in known.flags],
        "not_in_this_version": {
            "methods": [msgspec.to_builtins(m) for m in table.methods if m not in known.methods],
            "settings": [msgspec.to_builtins(s) for s in table.settings if s not in here],
            "flags": [msgspec.to_builtins(f) for f in table.flags if f not in flags],
        },
        "never_existed": [msgspec.to_builtins(never) for never in table.never],
    }
