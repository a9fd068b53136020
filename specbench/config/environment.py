"""``${NAME}`` in a config, and keeping what came from the environment out of everything that is stored."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Final

HIDDEN: Final = "***"

_VARIABLE: Final = re.compile(
    r"\$(?:(?P<dollar>\$)|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}|(?P<bad>\{[^}]*\}?))"
)
_SECRET_NAME: Final = re.compile(r"TOKEN|SECRET|PASSW|API_?KEY|ACCESS_?KEY|CREDENTIAL", re.IGNORECASE)


class VariableError(ValueError):
    """A variable that is not set, or a ``${`` that is none."""


def substitute(text: str, environ: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Replace ``${NAME}`` and ``${NAME:-default}``; ``$$`` is one dollar, a lone ``$`` stays.

    The default is taken when the variable is unset or empty, as in a shell.

    Returns:
        The text, and the variables that were really taken from the environment (value by name).

    Raises:
        VariableError: unset variable without a default, or a malformed ``${``.
    """
    used: dict[str, str] = {}

    def replace(match: re.Match[str]) -> str:
        if match["dollar"]:
            return "$"
        if match["bad"]:
            raise VariableError(
                f"`${match['bad']}` is no variable: write ${{NAME}} or ${{NAME:-default}}; $$ is a dollar"
            )
        name, default = match["name"], match["default"]
        value = environ.get(name)
        if default is not None and not value:
            return default
        if value is None:
            raise VariableError(
                f"the environment variable {name} is not set: set it, or write ${{{name}:-default}}"
            )
        used[name] = value
        return value

    return _VARIABLE.sub(replace, text), used


def escape(text: str) -> str:
    """Text that `substitute` gives back unchanged."""
    return re.sub(r"\$(?=[${])", "$$", text)


def is_secret(value: str) -> bool:
    """Whether a value is long enough to hide: replacing every ``3`` of a log would only destroy it."""
    plain_number = re.fullmatch(r"\d{1,7}|\d+\.\d+", value) is not None
    return len(value) >= 4 and not plain_number and value.lower() != "false" and value.lower() != "true"


def names_a_secret(name: str) -> bool:
    """Whether an environment variable's name says that its value must not be shown."""
    return _SECRET_NAME.search(name) is not None


def opens_doors(header: str) -> bool:
    """Whether a request header's name says that its value is a key: secret, and renewed now and then."""
    return re.search("auth|key|token|secret|cookie", header, re.IGNORECASE) is not None


def redact(text: str, secrets: Iterable[str] | Mapping[str, str]) -> str:
    """Hide secret values in any text: as ``***``, or, given value to name, as ``${NAME}``.

    Also found where JSON or a shell escaped them.
    """
    names = secrets if isinstance(secrets, Mapping) else {}
    shown: dict[str, str] = {}
    for value in sorted(s for s in secrets if is_secret(s)):
        replacement = f"${{{names[value]}}}" if value in names else HIDDEN
        quoted = shlex.quote(value)
        for form in (value, json.dumps(value)[1:-1], quoted[1:-1] if quoted != value else value):
            shown.setdefault(form, replacement)
    if not shown:
        return text
    # One pass, longest first: a replacement is never searched again.
    pattern = "|".join(re.escape(form) for form in sorted(shown, key=lambda form: (-len(form), form)))
    return re.sub(pattern, lambda match: shown[match[0]], text)
