"""The Python behind a launch command, and what is installed in it."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ELSEWHERE: Final = frozenset({"docker", "podman", "nerdctl", "ssh", "srun", "kubectl", "sudo"})
"""Programs whose child is not ours: they hand the command to a daemon, another machine or another user."""

TIMEOUT_S: Final = 120.0

_PROBE: Final = """
import importlib.metadata as m, json, sys
for name in sys.argv[1:]:
    try:
        print(json.dumps([name, m.version(name)]))
        break
    except m.PackageNotFoundError:
        pass
"""


class CommandFailed(RuntimeError):
    """A command could not be asked; the message says what it did."""


def is_local_command(command: Sequence[str]) -> bool:
    """Whether the server becomes a child process of the command, so that its port has a visible owner."""
    return not any(Path(word).name in ELSEWHERE for word in command)


def lacks_host_network(command: Sequence[str]) -> bool:
    """Whether the command starts a container whose server could not be reached on 127.0.0.1."""
    program = Path(command[0]).name if command else ""
    network = any(word in ("--network=host", "--net=host") for word in command) or any(
        pair in (("--network", "host"), ("--net", "host")) for pair in itertools.pairwise(command)
    )
    return program in ("docker", "podman") and not network


def python_of(command: Sequence[str], script: int = -2) -> list[str] | None:
    """The words that run the command's Python; null when that cannot be told.

    They are what stands before ``-m``, or the interpreter of the Python script at index ``script``
    with what stands before the script (``numactl -C 0 vllm serve``).
    """
    if "-m" in command:
        return list(command[: command.index("-m")]) or None
    path = shutil.which(command[script]) if len(command) >= abs(script) else None
    if path is None:
        return None
    with Path(path).open("rb") as file:
        first = file.readline(4096)
    words = first[2:].decode("utf-8", "replace").split() if first.startswith(b"#!") else []
    if words and Path(words[0]).name == "env":
        words = words[1:]
    if not words or not Path(words[0]).name.startswith("python"):
        return None
    return [*command[:script], *words]


def installed(python: Sequence[str], names: Sequence[str]) -> tuple[str, str] | None:
    """Name and version of the first of these distributions that the Python has.

    Only package metadata is read, which takes a fraction of a second where an import takes many.

    Raises:
        CommandFailed: the Python does not run.
    """
    answer = ask([*python, "-c", _PROBE, *names])
    if not answer:
        return None
    try:
        name, version = json.loads(answer.splitlines()[-1])
    except ValueError:
        raise CommandFailed(f"{' '.join(python)} answered {answer[:200]!r}") from None
    return str(name), str(version)


def ask(argv: Sequence[str]) -> str:
    """What a short command prints.

    Raises:
        CommandFailed: it does not run, takes too long or ends with an error.
    """
    said = " ".join(argv[:3])
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise CommandFailed(f"{said} did not answer in {TIMEOUT_S:.0f} s") from None
    except OSError as error:
        raise CommandFailed(f"{argv[0]} does not run: {error.strerror or error}") from None
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
        raise CommandFailed(f"{said} ended with code {done.returncode}, saying: {last[:300]}")
    return done.stdout.strip()
