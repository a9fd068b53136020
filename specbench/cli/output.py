"""The end of a sweep, and of ``report``: the files beside the run and the words on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specbench.report.build import build
from specbench.report.html import to_html
from specbench.report.jsonfile import to_json
from specbench.report.junit import to_junit
from specbench.report.markdown import to_markdown
from specbench.report.terminal import render
from specbench.runs.files import write_atomic
from specbench.verdict.exit_codes import ExitCode

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from specbench.report.model import Result
    from specbench.runs.rundir import RunDir


def write_reports(result: Result, folder: Path) -> dict[str, Path]:
    """Write every format into a folder; returns kind to path.

    Raises:
        RunFileError: a file could not be written.
    """
    paths = {
        "HTML": folder / "report.html",
        "Markdown": folder / "report.md",
        "JSON": folder / "result.json",
        "JUnit": folder / "junit.xml",
    }
    write_atomic(paths["HTML"], to_html(result).encode())
    write_atomic(paths["Markdown"], to_markdown(result).encode())
    write_atomic(paths["JSON"], to_json(result))
    write_atomic(paths["JUnit"], to_junit(result))
    return paths


def finish(run: RunDir, console: Console, folder: Path | None = None) -> ExitCode:
    """Judge a run, write its reports, show the end, return the verdict's exit code.

    Raises:
        RunFileError: the run is damaged, or a report could not be written.
    """
    result = build(run)
    paths = write_reports(result, folder or run.path)
    render(result, console)
    for kind, path in paths.items():
        console.print(f"{kind:>9}  {path}", highlight=False, soft_wrap=True)
    return ExitCode(result.exit_code)
