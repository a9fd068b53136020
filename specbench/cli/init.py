"""``specbench init``: a commented config to start from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from specbench.cli.errors import CliError
from specbench.config.source import ConfigError, is_path, load_config
from specbench.config.template import TEMPLATE_KINDS, example_model, render_template
from specbench.engines.registry import engine_kinds


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def init(
        model: Annotated[
            str | None, typer.Argument(help="The target: a Hugging Face id, or a path; an example if absent.")
        ] = None,
        engine: Annotated[str, typer.Option(help=f"One of {', '.join(engine_kinds())}.")] = "vllm",
        out: Annotated[Path, typer.Option("--out", "-o", help="File to write.")] = Path("specbench.yaml"),
        force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    ) -> None:
        """Write a commented config for a model."""
        kinds = [kind for kind in engine_kinds() if kind in TEMPLATE_KINDS]
        if engine not in kinds:
            raise CliError(f"--engine: {engine!r} is not one of {', '.join(kinds)}")
        if out.is_dir():
            raise CliError(f"{out} is a folder: name the file, for example {out / 'specbench.yaml'}")
        if out.exists() and not force:
            raise CliError(f"{out} exists: give another --out, or --force to overwrite it")
        write_config(out, _from_config_folder(model or example_model(engine), out), engine)
        typer.echo(f"wrote {out}\nnext: specbench doctor {out}, then specbench plan {out}")


def write_config(out: Path, model: str, engine: str) -> None:
    """Write the template for a model beside its place, check it, and move it there.

    Raises:
        CliError: it cannot be written, or the model's name makes no valid config.
    """
    draft = out.with_name(f".{out.name}.new")
    try:
        draft.write_text(render_template(model, engine, str(out)), encoding="utf-8")
        load_config(draft, check_paths=False)
        draft.replace(out)
    except OSError as error:
        raise CliError(f"{out}: cannot be written: {error.strerror or error}") from None
    except ConfigError as error:
        raise CliError(f"{model!r} makes no valid config: {error}") from None
    finally:
        draft.unlink(missing_ok=True)


def _from_config_folder(model: str, out: Path) -> str:
    """A path that was typed here, as the config in its own folder must write it."""
    here = Path(model).expanduser()
    if not (is_path(model) or (here / "config.json").is_file()):
        return model
    if model.startswith(("/", "~")):
        return model
    relative = os.path.relpath(here, out.parent)
    return relative if relative.startswith("..") else f"./{relative}"
