"""The command that starts SGLang, and which version is behind it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from typing import Final

from specbench.engines.base import EngineMissing
from specbench.engines.command import CommandFailed, installed, is_local_command, python_of

DEFAULT_COMMAND: Final = ("python", "-m", "sglang.launch_server")
INSTALL: Final = (
    "Install SGLang in an environment of its own (pip install sglang) and set engine.command to its "
    "Python, for example [/path/to/venv/bin/python, -m, sglang.launch_server]."
)
UNKNOWN: Final = "unknown"

_OFFICIAL_IMAGE: Final = re.compile(r"(?:^|/)lmsysorg/sglang:v(\d+(?:\.\d+)*(?:\.?post\d+)?)")


def installed_version(command: Sequence[str]) -> str:
    """The version of the SGLang that a command would start, from its package's metadata.

    A command in a container or on another machine is not asked: its version is ``unknown`` until the
    running server says, unless it is the tag of an official image.

    Raises:
        EngineMissing: a program does not exist, or its environment holds no SGLang.
    """
    if shutil.which(command[0]) is None:
        raise EngineMissing(f"engine.command: there is no program {command[0]!r} here. {INSTALL}")
    tags = [tag[1] for word in command if (tag := _OFFICIAL_IMAGE.search(word))]
    if tags:
        return tags[0]
    if not is_local_command(command):
        return UNKNOWN
    try:
        python = python_of(command)
        if python is None:
            return UNKNOWN
        found = installed(python, ("sglang",))
    except CommandFailed as error:
        raise EngineMissing(f"engine.command: {error}. {INSTALL}") from None
    if found is None:
        raise EngineMissing(f"engine.command: {' '.join(python)} has no SGLang. {INSTALL}")
    return found[1]
