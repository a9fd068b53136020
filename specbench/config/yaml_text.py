"""YAML text to plain data, with the line of every value and no surprises.

YAML 1.1 reads ``no`` as false, ``010`` as eight and ``1:30`` as ninety. What cannot be meant in a config
is refused here, with its line; what may be meant is kept together with how it was written, so that a
later type error can say so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

KeyPath = tuple[str | int, ...]
"""Where a value stands: ``("arms", 0, "k")``."""

MAX_BYTES: Final = 1 << 20
MAX_VALUES: Final = 20_000
MAX_DEPTH: Final = 50

_TAG: Final = "tag:yaml.org,2002:"
_PLAIN_TEXT: Final = frozenset({_TAG + "str", _TAG + "timestamp", _TAG + "value"})
"""Resolved types that a config reads as text: it has no use for dates, so ``2026-01-01`` is a revision."""

_SYNTAX: Final = (
    (r"found character '\\t'", "a tab; YAML indents with spaces only", "replace tabs by spaces"),
    (r"mapping values are not allowed", "a ':' where no key can be", 'put text that contains ": " in quotes'),
    (r"could not find expected ':'", "a line without 'key: value'", "check the indentation and the ':'"),
    (r"expected <block end>", "an indentation that fits no earlier line", "line the keys of a section up"),
    (
        r"found undefined alias",
        "an alias (*name) without its anchor",
        "put text that starts with * in quotes",
    ),
    (r"cannot start any token", "a character that cannot start a value", "put the text in quotes"),
    (
        r"expected ',' or '[\]}]'",
        "a list or mapping that does not end",
        "close it; quote ${NAME} inside [ ] or { }",
    ),
    (r"unexpected end of stream", "a quote that is never closed", "close it"),
)


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """One thing that is wrong: the 1-based line (null when no line is to blame), the key, the words."""

    line: int | None
    key: str
    message: str


class YamlError(Exception):
    """The text is not the YAML of a config."""

    def __init__(self, problems: list[ConfigProblem]) -> None:
        super().__init__("; ".join(p.message for p in problems))
        self.problems = problems


@dataclass(slots=True)
class Document:
    """Plain data, the line of each key or list item, and plain (unquoted) scalars as they were written."""

    data: Any = None
    lines: dict[KeyPath, int] = field(default_factory=dict)
    written: dict[KeyPath, str] = field(default_factory=dict)

    def line(self, path: KeyPath) -> int | None:
        """Line of a key path, or of the nearest section around it that stands in the file."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.lines:
                return self.lines[path[:end]]
        return None


def dotted(path: KeyPath) -> str:
    """``("arms", 0, "k")`` as a person writes it: ``arms[0].k``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def parse_yaml(text: str) -> Document:
    """Read one YAML document.

    Raises:
        YamlError: bad syntax, several documents, duplicate keys, tags, values that YAML misreads,
            or aliases that unfold into more than 20,000 values.
    """
    root = _compose(text)
    if root is None:
        raise YamlError([ConfigProblem(None, "", "the file is empty: `specbench init` writes a config")])
    builder = _Builder()
    builder.document.data = builder.build(root, (), root.start_mark.line + 1)
    if builder.problems:
        raise YamlError(builder.problems)
    return builder.document


def _compose(text: str) -> yaml.Node | None:
    try:
        loader = yaml.SafeLoader(text)
        try:
            return loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise YamlError(
            [
                ConfigProblem(
                    line, "", f"found the control character U+{ord(text[error.position]):04X}: remove it"
                )
            ]
        ) from None
    except yaml.MarkedYAMLError as error:
        raise YamlError([_syntax_problem(error)]) from None
    except RecursionError:
        raise YamlError([ConfigProblem(None, "", f"nested deeper than {MAX_DEPTH} levels")]) from None


def _syntax_problem(error: yaml.MarkedYAMLError) -> ConfigProblem:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark is not None else None
    problem = error.problem or "bad syntax"
    if "but found another document" in problem:
        return ConfigProblem(line, "", "a second document starts at '---': a config is one document")
    for pattern, what, mend in _SYNTAX:
        if re.search(pattern, problem):
            return ConfigProblem(line, "", f"not YAML: {what}: {mend}")
    return ConfigProblem(line, "", f"not YAML: {problem}")


class _Builder:
    """Turns YAML nodes into plain data and collects every problem on the way."""

    def __init__(self) -> None:
        self.document = Document()
        self.problems: list[ConfigProblem] = []
        self.values = 0

    def build(self, node: yaml.Node, path: KeyPath, line: int) -> Any:
        self.values += 1
        if self.values > MAX_VALUES or len(path) > MAX_DEPTH:
            what = (
                f"more than {MAX_VALUES} values (aliases counted each time they are used)"
                if self.values > MAX_VALUES
                else f"nested deeper than {MAX_DEPTH} levels, or an alias that contains itself"
            )
            raise YamlError([*self.problems, ConfigProblem(line, dotted(path[:6]), what)])
        self.document.lines[path] = line
        if isinstance(node, yaml.ScalarNode):
            if node.style is None:
                self.document.written[path] = node.value
            return self._scalar(node, path, line)
        if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            return [
                self.build(item, (*path, i), item.start_mark.line + 1) for i, item in enumerate(node.value)
            ]
        if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
            return self._mapping(node, path)
        self._problem(line, path, f"the tag {_shown_tag(node.tag)} is not supported: remove it")
        return None

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[Any, Any]:
        own: dict[Any, Any] = {}
        merged: dict[Any, Any] = {}
        first_line: dict[Any, int] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _TAG + "merge":
                merged = {**self._merge(value_node, path, key_node.start_mark.line + 1), **merged}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = None if key_node.tag == _TAG + "merge" else self._key(key_node, path, line)
            if key is None:
                continue
            if key in first_line:
                self._problem(
                    line, (*path, key), f"this key was already given in line {first_line[key]}: keep one"
                )
                continue
            first_line[key] = line
            own[key] = self.build(value_node, (*path, key), line)
        return {**{k: v for k, v in merged.items() if k not in own}, **own}

    def _merge(self, node: yaml.Node, path: KeyPath, line: int) -> dict[Any, Any]:
        """``<<: *defaults`` or ``<<: [*a, *b]``; in a list the first mapping wins."""
        section_line = self.document.lines[path]
        value = self.build(node, path, line)
        self.document.lines[path] = section_line
        merged: dict[Any, Any] = {}
        for part in value if isinstance(value, list) else [value]:
            if not isinstance(part, dict):
                self._problem(line, path, "`<<` merges mappings only")
                return {}
            merged = {**part, **merged}
        return merged

    def _key(self, node: yaml.Node, path: KeyPath, line: int) -> str | int | None:
        if not isinstance(node, yaml.ScalarNode):
            self._problem(line, path, "a list or mapping cannot be a key: put text with [ or { in quotes")
            return None
        key = self._scalar(node, path, line)
        if isinstance(key, bool) or key is None:
            read_as = "nothing" if key is None else str(key).lower()
            self._problem(line, path, f"YAML reads the key `{node.value}` as {read_as}: put it in quotes")
            return None
        return str(key) if isinstance(key, float) else key

    def _scalar(self, node: yaml.ScalarNode, path: KeyPath, line: int) -> Any:
        value: str = node.value
        if node.tag in _PLAIN_TEXT:
            return value
        if node.tag == _TAG + "null":
            return None
        if node.tag == _TAG + "bool" and value.lower() in yaml.SafeLoader.bool_values:
            return yaml.SafeLoader.bool_values[value.lower()]
        if node.tag == _TAG + "int":
            return self._int(value, path, line)
        if node.tag == _TAG + "float":
            return self._float(value, path, line)
        self._problem(line, path, f"the tag {_shown_tag(node.tag)} is not supported: remove it")
        return None

    def _int(self, value: str, path: KeyPath, line: int) -> int | None:
        digits = value.replace("_", "").lstrip("+-").lower()
        sign = -1 if value.startswith("-") else 1
        if ":" in digits:
            self._misread(value, "a number to base 60", "write seconds or 90s, 20m, 1h30m", path, line)
            return None
        if len(digits) > 18:
            self._problem(
                line, path, f"found a number of {len(digits)} digits: put it in quotes if it is text"
            )
            return None
        if digits.startswith("0b"):
            return sign * int(digits[2:], 2)
        if digits.startswith("0x"):
            return sign * int(digits[2:], 16)
        if len(digits) > 1 and digits.startswith("0"):
            self._misread(value, "an octal number", f"write {digits.lstrip('0') or 0}", path, line)
            return None
        try:
            return sign * int(digits)
        except ValueError:
            self._problem(line, path, f"`{value}` is no whole number")
            return None

    def _float(self, value: str, path: KeyPath, line: int) -> float | None:
        text = value.replace("_", "").lower()
        if ":" in text:
            self._misread(value, "a number to base 60", "write seconds or 90s, 20m, 1h30m", path, line)
            return None
        if "n" in text:
            self._problem(line, path, f"found `{value}`; expected a finite number")
            return None
        try:
            return float(text)
        except ValueError:
            self._problem(line, path, f"`{value}` is no number")
            return None

    def _misread(self, value: str, read_as: str, mend: str, path: KeyPath, line: int) -> None:
        self._problem(
            line, path, f"YAML reads `{value}` as {read_as}: {mend}, or put it in quotes if it is text"
        )

    def _problem(self, line: int, path: KeyPath, message: str) -> None:
        self.problems.append(ConfigProblem(line, dotted(path), message))


def _shown_tag(tag: str) -> str:
    return "!!" + tag.removeprefix(_TAG) if tag.startswith(_TAG) else tag
