"""Reading the config that a command names."""

from __future__ import annotations

from pathlib import Path

from specbench.cli.errors import CliError
from specbench.config.source import ConfigError, LoadedConfig, load_config


def read_config(path: Path, *, check_paths: bool = True) -> LoadedConfig:
    """`load_config` with its problems as one message.

    Raises:
        CliError: exit code 2.
    """
    try:
        return load_config(path, check_paths=check_paths)
    except ConfigError as error:
        if len(error.problems) == 1:
            raise CliError(error.problems[0]) from None
        lines = "\n".join(f"  {problem}" for problem in error.problems)
        raise CliError(f"the config has {len(error.problems)} problems\n{lines}") from None
