"""Errors that a command shows to the person who typed it."""

from __future__ import annotations

from specbench.verdict.exit_codes import ExitCode


class CliError(Exception):
    """A foreseen failure: the message says what is wrong, where, and the mend."""

    def __init__(self, message: str, exit_code: ExitCode = ExitCode.USAGE) -> None:
        super().__init__(message)
        self.exit_code = exit_code
