"""A launch command that hands the server to another place: a container, another machine.

Such a command needs help with three things that a child process has for nothing: its environment, the port,
and (over ssh) a shell that reads every word once more.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from specbench.config.environment import names_a_secret
from specbench.engines.ports import HOST

PORT: Final = "{port}"
"""Stands in ``engine.command`` for the port of a launch: ``-p 127.0.0.1:{port}:{port}``."""

CONTAINERS: Final = frozenset({"docker", "podman", "nerdctl"})
EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 - inside a container whose port is published on 127.0.0.1 only

_SSH_WITH_VALUE: Final = frozenset("BbcDEeFIiJLlmOopQRSWw")
"""Options of ssh that take the next word."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """What stands before the engine's own flags.

    Attributes:
        words: the command for one launch.
        host: the address that the server must listen on.
        quoted: whether words after these go through a shell.
    """

    words: tuple[str, ...]
    host: str = HOST
    quoted: bool = False

    def argv(self, flags: Sequence[str]) -> tuple[str, ...]:
        """The whole command line."""
        return (*self.words, *(map(shlex.quote, flags) if self.quoted else flags))


def make_prefix(command: Sequence[str], port: int, env: Mapping[str, str]) -> Prefix:
    """The prefix of one launch.

    A container is told the names of the variables (``--env NAME``), so that their values stay out of the
    command line; over ssh they are set by ``env NAME=VALUE``, secrets left out.
    """
    words = [word.replace(PORT, str(port)) for word in command]
    program = next((i for i, word in enumerate(words) if Path(word).name in {*CONTAINERS, "ssh"}), None)
    if program is None:
        return Prefix(tuple(words))
    if Path(words[program]).name == "ssh":
        remote = remote_start(words, program)
        shown = [f"{name}={shlex.quote(value)}" for name, value in env.items() if not names_a_secret(name)]
        return Prefix((*words[:remote], *(["env", *shown] if shown else []), *words[remote:]), quoted=True)
    run = next((i for i in range(program + 1, len(words)) if words[i] in ("run", "exec")), None)
    if run is not None:
        added = [part for name in env if not _passes(words, name) for part in ("--env", name)]
        words[run + 1 : run + 1] = added
    return Prefix(tuple(words), host=EVERYWHERE if publishes_port(command) else HOST)


def publishes_port(command: Sequence[str]) -> bool:
    """Whether a container's port is published on this machine."""
    return any(Path(word).name in CONTAINERS for word in command) and any(PORT in word for word in command)


def remote_start(words: Sequence[str], ssh: int) -> int:
    """Index of the first word that ssh hands to the other machine; the number of words if there is none."""
    i = ssh + 1
    while i < len(words) and words[i].startswith("-"):
        letters = words[i][1:]
        takes = next((n for n, letter in enumerate(letters) if letter in _SSH_WITH_VALUE), None)
        i += 2 if takes is not None and takes == len(letters) - 1 else 1
    return min(i + 1, len(words))


def _passes(words: Sequence[str], name: str) -> bool:
    """Whether the command already gives a container this variable."""
    given = [word.removeprefix("--env=") for word in words]
    return any(word == name or word.startswith(f"{name}=") for word in given)
