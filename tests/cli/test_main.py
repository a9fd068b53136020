"""One command at a time: what is not asked for is not imported."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from specbench.cli.main import COMMANDS, build, main


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_stands_alone(command: str) -> None:
    shown = CliRunner().invoke(build(command), [command, "--help"])
    assert shown.exit_code == 0
    assert f"specbench {command}" in shown.output or f"root {command}" in shown.output


def test_the_help_lists_all(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = capsys.readouterr().out
    assert [c for c in COMMANDS if f" {c} " not in listed] == []


def test_what_is_not_asked_for_is_not_imported() -> None:
    code = (
        "import sys; from specbench.cli.main import build; build('schema');"
        "print([m for m in ('specbench.report.build', 'aiohttp', 'scipy.special') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
