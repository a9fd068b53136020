"""Engine flags as configs name them and as command lines spell them; the same for every engine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specbench.config.model import ArgValue


def normal_name(name: str) -> str:
    """A flag's name in its usual spelling: no leading dashes, words joined by dashes."""
    return name.lstrip("-").replace("_", "-")


def merge_args(base: Mapping[str, ArgValue], own: Mapping[str, ArgValue]) -> dict[str, ArgValue]:
    """``base`` with the arm's ``own`` args on top, however they are spelled (dashes or underscores).

    An own ``enable-x: true`` also replaces a ``no-enable-x`` of the base, and the other way round.
    """
    merged = {normal_name(name): value for name, value in base.items()}
    for raw, value in own.items():
        name = normal_name(raw)
        if value is True:
            merged.pop(name.removeprefix("no-") if name.startswith("no-") else f"no-{name}", None)
        merged[name] = value
    return merged


def render_args(args: Mapping[str, ArgValue]) -> list[str]:
    """Command-line words of engine flags.

    True gives ``--flag``; false and null give nothing; a list repeats its values after one flag
    (an empty list gives nothing); a mapping becomes compact JSON.
    """
    words: list[str] = []
    for name, value in args.items():
        flag = f"--{normal_name(name)}"
        if value is None or value is False:
            continue
        if value is True:
            words.append(flag)
        elif isinstance(value, list):
            words += [flag, *map(_word, value)] if value else []
        else:
            word = _word(value)
            # A separate word with a leading dash would be read as another flag.
            words += [f"{flag}={word}"] if word.startswith("-") else [flag, word]
    return words


def _word(value: object) -> str:
    if isinstance(value, dict | list):
        return json.dumps(value, separators=(",", ":"))
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
