"""Validation errors in words: what was found, what is allowed, what was probably meant."""

from __future__ import annotations

import difflib
import re
import typing
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from specbench.config.model import Config
from specbench.config.yaml_text import ConfigProblem, Document, KeyPath, dotted

_EXPECTED: Final = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "dict_type": "a mapping (key: value)",
    "finite_number": "a finite number",
    "greater_than": "a number greater than {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number less than {lt}",
    "less_than_equal": "a number of at most {le}",
    "too_short": "at least {min_length} entry",
    "string_too_short": "text that is not empty",
    "literal_error": "{expected}",
}

_PATTERNS: Final = {
    "name": "a name of letters, digits, '.', '_' and '-', at most 64, the first one a letter or digit",
    "env": "a variable name of letters, digits and '_'",
}

_MEANT: Final = {
    "num_speculative_tokens": "k",
    "speculative_tokens": "k",
    "speculative_num_draft_tokens": "k",
    "draft_model": "draft",
    "model": "draft",
    "concurrency": "closed",
    "concurrencies": "closed",
    "max_tokens": "max_output_tokens",
    "dataset": "source",
    "type": "kind",
    "repeats": "rounds",
    "seed": "order_seed",
    "load": "loads",
    "arm": "arms",
}
"""Names from other tools, tried where the section has the key that they mean."""


def problems_in_words(
    error: ValidationError, data: Any, document: Document, originals: dict[KeyPath, str]
) -> list[ConfigProblem]:
    """One problem per wrong value, in the order of the file.

    Args:
        data: what was validated.
        originals: text with ``${NAME}`` of the values that came from the environment, which are not shown.
    """
    groups: dict[KeyPath, list[dict[str, Any]]] = {}
    for item in error.errors(include_url=False):
        path, is_key = _path_in_data(item["loc"], data, item["type"])
        groups.setdefault(path, []).append({**item, "is_key": is_key})
    paths = set(groups)
    problems = []
    for path, items in groups.items():
        inner = any(len(other) > len(path) and other[: len(path)] == path for other in paths)
        if inner and all(item["type"] in _EXPECTED for item in items):
            continue  # the other branches of a union: the one that fits the value has more to say
        message = _message(path, items, data, document, originals)
        line = document.line(path) if path else _line_of_words(message, document)
        problems.append(ConfigProblem(line, dotted(path), message))
    return sorted(problems, key=lambda p: p.line or 0)


def value_at(data: Any, path: KeyPath) -> Any:
    """The value at a path, or null when nothing is there."""
    for part in path:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def _path_in_data(loc: tuple[int | str, ...], data: Any, kind: str) -> tuple[KeyPath, bool]:
    """Pydantic's location without the names of union branches; whether the key itself is wrong."""
    path: list[str | int] = []
    is_key = bool(loc) and loc[-1] == "[key]"
    loc = loc[:-1] if is_key else loc
    for i, part in enumerate(loc):
        here = (isinstance(data, dict) and part in data) or (
            isinstance(data, list) and isinstance(part, int) and part < len(data)
        )
        # Keys that are numbers arrive as text.
        number = isinstance(data, dict) and isinstance(part, str) and part.lstrip("-").isdigit()
        if here:
            path.append(part)
            data = data[part]
        elif number and int(part) in data:
            path.append(int(part))
            data = data[int(part)]
        elif kind == "missing" and i == len(loc) - 1:
            path.append(part)
    return tuple(path), is_key


def _message(
    path: KeyPath,
    items: list[dict[str, Any]],
    data: Any,
    document: Document,
    originals: dict[KeyPath, str],
) -> str:
    first = items[0]
    kind = first["type"]
    if kind == "missing":
        return f"is missing: {_description(path) or 'give it a value'}"
    if kind == "extra_forbidden":
        return _unknown_key(path)
    found = f"the key {path[-1]!r}" if first["is_key"] else _found(path, data, document, originals)
    own = [item for item in items if item["type"] == "value_error"]
    if own:
        text = str(own[0]["ctx"]["error"])
        scalar = path and not isinstance(value_at(data, path), dict | list)
        return f"{text} (found {found})" if scalar else text
    expected = " or ".join(dict.fromkeys(_expected(path, item) for item in items))
    hint = "" if first["is_key"] else _hint(path, items, data, document)
    return f"found {found}; expected {expected}{hint}"


def _expected(path: KeyPath, item: dict[str, Any]) -> str:
    kind = item["type"]
    if kind == "model_type" or kind == "model_attributes_type":
        section = _section(path)
        return f"a section with the keys {', '.join(section.model_fields)}" if section else "a section"
    if kind == "string_pattern_mismatch":
        return next((words for name, words in _PATTERNS.items() if name in path), item["msg"])
    template = _EXPECTED.get(kind)
    if template is None:
        return str(item["msg"])
    return template.format_map({k: _number(v) for k, v in item.get("ctx", {}).items()})


def _found(path: KeyPath, data: Any, document: Document, originals: dict[KeyPath, str]) -> str:
    value = value_at(data, path)
    if path in originals:
        return f"the value of {originals[path]}"
    written = document.written.get(path, "")
    if isinstance(value, bool):
        word = str(value).lower()
        return word if written.lower() == word else f"`{written}`, which YAML reads as {word}"
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return f"the text {value if len(value) <= 60 else value[:57] + '...'!r}"
    if isinstance(value, list):
        return "an empty list" if not value else "a list"
    if isinstance(value, dict):
        return "a mapping"
    return str(value)


def _hint(path: KeyPath, items: list[dict[str, Any]], data: Any, document: Document) -> str:
    value = value_at(data, path)
    kinds = {item["type"] for item in items}
    if isinstance(value, str) and kinds & {"int_type", "float_type"}:
        number = re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", value.strip())
        if number and path not in document.written:
            return ": remove the quotes"
        if number:
            plain = float(value)
            return f": write {int(plain) if plain.is_integer() else plain}"
    if isinstance(value, bool | int | float) and "string_type" in kinds:
        return ": put it in quotes"
    if "literal_error" in kinds and isinstance(value, str):
        return _did_you_mean(value, re.findall(r"'([^']*)'", str(items[0]["ctx"]["expected"])))
    if value is None:
        return ": give it a value or remove the key"
    return ""


def _unknown_key(path: KeyPath) -> str:
    key = str(path[-1])
    section = _section(path[:-1])
    allowed = list(section.model_fields) if section else []
    meant = _MEANT.get(key.lower().replace("-", "_"))
    hint = f"; did you mean {meant}?" if meant in allowed else _did_you_mean(key, allowed)
    if not hint:
        homes = [home for home in _homes().get(key, []) if home != dotted(path[:-1])]
        hint = f"; {key} belongs in {' or '.join(homes)}" if homes else ""
    return f"unknown key{hint}; allowed: {', '.join(allowed)}"


def _did_you_mean(word: str, allowed: list[str]) -> str:
    close = difflib.get_close_matches(word.lower().replace("-", "_"), allowed, n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""


def _section(path: KeyPath) -> type[BaseModel] | None:
    """The section class that stands at a path of the config."""
    section: type[BaseModel] | None = Config
    for part in path:
        if isinstance(part, int) or section is None:
            continue
        known = section.model_fields.get(part)
        section = _section_in(known.annotation) if known else None
    return section


def _section_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_section_in, typing.get_args(annotation))), None)


def _homes(section: type[BaseModel] = Config, prefix: str = "") -> dict[str, list[str]]:
    """Every key of every subsection, with the sections that have it."""
    homes: dict[str, list[str]] = {}
    for name, known in section.model_fields.items():
        inner = _section_in(known.annotation)
        if inner is not None:
            place = f"{prefix}{name}"
            for key in inner.model_fields:
                homes.setdefault(key, []).append(place)
            for key, places in _homes(inner, f"{place}.").items():
                homes.setdefault(key, []).extend(places)
        elif not prefix:
            homes.setdefault(name, []).append("the top level")
    return homes


def _description(path: KeyPath) -> str | None:
    section = _section(path[:-1])
    known = section.model_fields.get(str(path[-1])) if section else None
    text = known.description if known else None
    return text[0].lower() + text[1:] if text else None


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _line_of_words(message: str, document: Document) -> int | None:
    """A rule over the whole file starts with the key that it is about: use that key's line."""
    return document.lines.get(tuple(message.split(" ", 1)[0].split(".")))
