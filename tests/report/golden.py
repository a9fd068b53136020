"""Reports as text files under ``golden/``.

Rewrite them with ``python -m tests.report.golden`` and read the diff.
"""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from specbench.report.markdown import to_markdown
from specbench.report.model import Result
from specbench.report.terminal import render
from tests.report import samples

FOLDER = Path(__file__).parent / "golden"


def terminal(result: Result, width: int) -> str:
    """What a console that is no terminal shows, without padding at the ends of lines."""
    console = Console(file=io.StringIO(), width=width, force_terminal=False, color_system=None)
    render(result, console)
    assert isinstance(console.file, io.StringIO)
    return "".join(f"{line.rstrip()}\n" for line in console.file.getvalue().splitlines())


def expected() -> dict[str, str]:
    """File name to contents."""
    files = {}
    for name in ("go", "no_go", "inconclusive", "single_round", "invalid"):
        result = samples.ALL[name]()
        files[f"{name}.md"] = to_markdown(result)
        files[f"{name}.80.txt"] = terminal(result, 80)
    files["go.120.txt"] = terminal(samples.go(), 120)
    return files


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for file, text in expected().items():
        (FOLDER / file).write_text(text, encoding="utf-8")
