"""A config file from disk to a validated `Config`, with every problem told at once."""

from __future__ import annotations

import os
import re
import shlex
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from specbench.config.attach import attach_problems
from specbench.config.environment import (
    VariableError,
    escape,
    names_a_secret,
    opens_doors,
    redact,
    substitute,
)
from specbench.config.grid import GridError, expand_arms
from specbench.config.messages import problems_in_words, value_at
from specbench.config.model import Config
from specbench.config.yaml_text import (
    MAX_BYTES,
    ConfigProblem,
    Document,
    KeyPath,
    YamlError,
    dotted,
    parse_yaml,
)

MAX_PROBLEMS: Final = 20

_REQUEST_FILES: Final = ("workload.source", "workload.lengths.source", "verdict.traffic_from")
"""Paths without which there is nothing to plan."""

__all__ = ["ConfigError", "LoadedConfig", "is_path", "load_config", "redact"]


class ConfigError(Exception):
    """The config cannot be used; ``problems`` has one line of text each."""

    def __init__(self, problems: list[str]) -> None:
        shown = problems[:MAX_PROBLEMS]
        if len(problems) > MAX_PROBLEMS:
            shown.append(f"... and {len(problems) - MAX_PROBLEMS} more")
        super().__init__("\n".join(shown))
        self.problems = tuple(shown)


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A valid config and where it came from.

    Attributes:
        config: with variables filled in and paths made absolute.
        path: the file, as it was given.
        text: the file's text; variables are still ``${NAME}`` in it.
        base_dir: absolute folder of the file; relative paths start there.
        secrets: values that came from the environment, and environment values whose names say that
            they are secret; never store or print them.
        variables: the same values, each with the name to write instead.
        missing: problems of paths that do not exist, when they were not made errors.
        lines: line of every key path of the file.
    """

    config: Config
    path: Path
    text: str
    base_dir: Path
    secrets: frozenset[str]
    variables: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    lines: Mapping[str, int] = field(default_factory=dict)

    def redact(self, text: str) -> str:
        """Text with secrets written as ``${NAME}``, so that a command line can still be run."""
        return redact(text, self.variables)

    @property
    def safe_text(self) -> str:
        """The file's text, for storing: also literal secrets of the ``env`` sections are hidden."""
        return self.redact(self.text)

    @property
    def resolved(self) -> dict[str, Any]:
        """The whole config with its defaults, for storing: variables are ``${NAME}`` again."""
        plain: dict[str, Any] = _redacted(self.config.model_dump(mode="json"), self.variables)
        return plain

    def where(self, key: str) -> str:
        """``file:line`` of a dotted key such as ``arms[1].draft``, or of the section around it."""
        while key and key not in self.lines:
            key = re.sub(r"(\.[^.\[\]]+|\[\d+\]|^[^.\[\]]+)$", "", key) if "." in key or "[" in key else ""
        return f"{self.path}:{self.lines[key]}" if key else str(self.path)


def load_config(
    path: Path, *, environ: Mapping[str, str] | None = None, check_paths: bool = True
) -> LoadedConfig:
    """Read, fill in and validate a config file.

    Args:
        environ: where ``${NAME}`` is looked up; the process environment if absent.
        check_paths: whether a missing model, draft or command file is an error. If not, it is told in
            `LoadedConfig.missing`. A missing ``workload.source`` is always an error.

    Raises:
        ConfigError: anything wrong, up to 20 problems of ``file:line: key: what`` in words.
    """
    text = _read(path)
    try:
        document = parse_yaml(text)
    except YamlError as error:
        raise _error(path, error.problems) from None
    if not isinstance(document.data, dict):
        raise _error(
            path,
            [ConfigProblem(1, "", "the file holds no `key: value` pairs: `specbench init` writes a config")],
        )
    base_dir = path.expanduser().resolve().parent
    filled = _Filled(document, os.environ if environ is None else environ)
    missing = filled.resolve_paths(base_dir)
    fatal = [p for p in missing if check_paths or p.key in _REQUEST_FILES]
    config, problems = filled.validate()
    if config is not None:
        problems += _grid_problems(config, document)
    problems = [*filled.problems, *problems, *fatal]
    if config is None or problems:
        raise _error(path, sorted(problems, key=lambda p: p.line or 0))
    variables = {**_named_secrets(config, filled.taken), **filled.taken}
    return LoadedConfig(
        config=config,
        path=path,
        text=text,
        base_dir=base_dir,
        secrets=frozenset(variables),
        variables=variables,
        missing=tuple(_line_of_text(path, p) for p in missing),
        lines={dotted(key): line for key, line in document.lines.items()},
    )


def is_path(text: str) -> bool:
    """Whether a value names a file or folder rather than a model id or a dataset."""
    return text in {".", "..", "~"} or text.startswith(("./", "../", "/", "~"))


UNSEEN: Final = frozenset({"Cc", "Cf", "Cs"})
"""Unicode categories of control, format and surrogate characters: no name, path or flag has them on purpose."""


class _Filled:
    """A document's data with variables filled in and paths resolved, and what was replaced where."""

    def __init__(self, document: Document, environ: Mapping[str, str]) -> None:
        self.document = document
        self.environ = environ
        self.problems: list[ConfigProblem] = []
        self.originals: dict[KeyPath, str] = {}
        self.taken: dict[str, str] = {}
        self.broken: set[KeyPath] = set()
        self.data = self._fill(document.data, ())

    def validate(self) -> tuple[Config | None, list[ConfigProblem]]:
        """Validate strictly; a variable's text becomes a number or true/false only where one is wanted."""
        error = self._error()
        if isinstance(error, ValidationError) and self._convert(error):
            error = self._error()
        if isinstance(error, Config):
            return error, []
        problems = problems_in_words(error, self.data, self.document, self.originals)
        broken = {dotted(path) for path in self.broken}
        return None, [p for p in problems if p.key not in broken]

    def resolve_paths(self, base_dir: Path) -> list[ConfigProblem]:
        """Make paths absolute in place; return those that do not exist."""
        target, engine, workload = (self.data.get(key) for key in ("target", "engine", "workload"))
        spots: list[tuple[Any, Any, KeyPath]] = []
        if isinstance(target, str):
            spots.append((self.data, "target", ("target",)))
        elif isinstance(target, dict):
            spots += [(target, key, ("target", key)) for key in ("model", "tokenizer")]
        for i, arm in enumerate(_list(self.data.get("arms"))):
            draft = arm.get("draft") if isinstance(arm, dict) else None
            if isinstance(draft, str):
                spots.append((arm, "draft", ("arms", i, "draft")))
            spots += [(draft, j, ("arms", i, "draft", j)) for j in range(len(_list(draft)))]
        engines: list[tuple[KeyPath, Any]] = [(("engine",), engine)]
        others = self.data.get("other_engines")
        if isinstance(others, dict):
            engines += [(("other_engines", name), section) for name, section in others.items()]
        sections = [(path, section) for path, section in engines if isinstance(section, dict)]
        spots += [(section, "ca", (*path, "ca")) for path, section in sections]
        if isinstance(workload, dict):
            spots.append((workload, "source", ("workload", "source")))
            if isinstance(workload.get("lengths"), dict):
                spots.append((workload["lengths"], "source", ("workload", "lengths", "source")))
        if isinstance(verdict := self.data.get("verdict"), dict):
            spots.append((verdict, "traffic_from", ("verdict", "traffic_from")))
        missing = [p for holder, key, path in spots if (p := self._resolve(holder, key, path, base_dir))]
        missing += [
            problem
            for path, section in sections
            for problem in self._resolve_command(section, path, base_dir)
        ]
        parity = self.data.get("parity")
        if isinstance(parity, dict) and isinstance(task := parity.get("task"), dict):
            missing += self._resolve_command(task, ("parity", "task"), base_dir, here=True)
        return missing

    def _resolve_command(
        self, section: dict[Any, Any], path: KeyPath, base_dir: Path, *, here: bool = False
    ) -> list[ConfigProblem]:
        """Only entries that start with ./ ../ or ~: an absolute one may be a path in a container.

        Args:
            here: the command runs in the config's folder, where ``bin/score`` means ``./bin/score``.
        """
        command = section.get("command")
        if isinstance(command, str):
            try:
                section["command"] = command = shlex.split(command)
            except ValueError:
                return []  # validation says so
        if here and isinstance(command, list) and command:
            first = command[0]
            if isinstance(first, str) and "/" in first and not is_path(first):
                command[0] = f"./{first}"
        missing = []
        for i, entry in enumerate(_list(command)):
            if isinstance(entry, str) and is_path(entry) and (i == 0 or not entry.startswith("/")):
                problem = self._resolve(command, i, (*path, "command", i), base_dir)
                missing += [problem] if problem else []
        return missing

    def _resolve(self, holder: Any, key: Any, path: KeyPath, base_dir: Path) -> ConfigProblem | None:
        value = holder.get(key) if isinstance(holder, dict) else holder[key]
        if not isinstance(value, str) or not is_path(value):
            return None
        shown = self.originals.get(path, value)
        try:
            found = Path(os.path.normpath(base_dir / Path(value).expanduser()))
            exists = found.exists()
        except (OSError, ValueError, RuntimeError):  # too long, a NUL, an unknown ~user
            found, exists = Path(value), False
        holder[key] = str(found)
        if exists:
            return None
        start = "" if value.startswith(("/", "~")) else " (relative paths start at the config's folder)"
        return ConfigProblem(
            self.document.line(path), dotted(path), f"{shown} does not exist{start}: correct the path"
        )

    def _fill(self, value: Any, path: KeyPath) -> Any:
        if isinstance(value, dict):
            return {k: self._fill(v, (*path, k)) for k, v in value.items()}
        if isinstance(value, list):
            return [self._fill(v, (*path, i)) for i, v in enumerate(value)]
        if not isinstance(value, str):
            return value
        unseen = next((c for c in value if unicodedata.category(c) in UNSEEN and c not in "\n\t"), None)
        if unseen is not None:
            self._refuse(
                path, f"holds the invisible character U+{ord(unseen):04X}: write the value without it"
            )
            return value
        if "$" not in value:
            return value
        try:
            text, used = substitute(value, self.environ)
        except VariableError as error:
            self._refuse(path, str(error))
            return value
        for name, taken in used.items():
            self.taken.setdefault(taken, name)
        if text != value:
            self.originals[path] = value
        # Engine flags have no declared type: an unquoted ${N} is what a plain YAML number would be.
        if path in self.document.written and {"args", "settings", "variants"} & set(path):
            return _canonical(text)
        return text

    def _refuse(self, path: KeyPath, why: str) -> None:
        self.problems.append(ConfigProblem(self.document.line(path), dotted(path), why))
        self.broken.add(path)

    def _error(self) -> ValidationError | Config:
        try:
            return Config.model_validate(self.data, strict=True)
        except ValidationError as error:
            return error

    def _convert(self, error: ValidationError) -> bool:
        """Turn texts that came from variables into the number that was expected; whether any was."""
        wanted = ("int_type", "float_type", "bool_type")
        errors = [e for e in error.errors(include_url=False) if e["type"] in wanted]
        converted = False
        for path in self.originals:
            value = value_at(self.data, path)
            if any(e["loc"][: len(path)] == path for e in errors) and isinstance(value, str):
                holder, new = value_at(self.data, path[:-1]), _canonical(value)
                converted = converted or new is not value
                holder[path[-1]] = new
        return converted


def _canonical(text: str) -> str | int | float | bool:
    """A number or true/false when writing it back gives the same text; otherwise the text."""
    if text in {"true", "false"}:
        return text == "true"
    if re.fullmatch(r"-?(0|[1-9]\d{0,17})", text):
        return int(text)
    if re.fullmatch(r"-?\d+\.\d+", text) and repr(float(text)) == text:
        return float(text)
    return text


def _read(path: Path) -> str:
    try:
        with path.expanduser().open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError([f"{path}: there is no such file: `specbench init` writes a config"]) from None
    except IsADirectoryError:
        raise ConfigError([f"{path}: this is a folder: name the config file in it"]) from None
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror or error}"]) from None
    if len(raw) > MAX_BYTES:
        raise ConfigError([f"{path}: larger than {MAX_BYTES >> 20} MiB: is this a config file?"])
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            [f"{path}:{line}: the byte 0x{raw[error.start]:02x} is not UTF-8: save the file as UTF-8"]
        ) from None


def _grid_problems(config: Config, document: Document) -> list[ConfigProblem]:
    try:
        expand_arms(config)
    except GridError as error:
        return [ConfigProblem(document.line(("arms",)), "arms", str(error))]
    if config.other_engines and config.measure.strategy == "adaptive":
        text = (
            "an adaptive sweep picks among the arms of one engine: "
            "use measure.strategy: full, or one config per engine"
        )
        return [ConfigProblem(document.line(("other_engines",)), "other_engines", text)]
    return [ConfigProblem(document.line(key), dotted(key), text) for key, text in attach_problems(config)]


def _named_secrets(config: Config, taken: Mapping[str, str]) -> dict[str, str]:
    """Literal values of environment variables and headers whose names say that they are secret."""
    engines = [config.engine, *config.other_engines.values()]
    sections = [*(engine.env for engine in engines), *(arm.env for arm in config.arms)]
    named = {v: k for env in sections for k, v in env.items() if v and names_a_secret(k)}
    # "Bearer ${KEY}" is shown as that: the variable alone is hidden in it.
    headers = [item for engine in engines for item in engine.headers.items()]
    keys = {v: k for k, v in headers if opens_doors(k) and not any(t in v for t in taken)}
    return {**keys, **named}


def _redacted(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {k: _redacted(v, variables) for k, v in value.items()}
    if isinstance(value, list):
        return [_redacted(v, variables) for v in value]
    return redact(escape(value), variables) if isinstance(value, str) else value


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _error(path: Path, problems: list[ConfigProblem]) -> ConfigError:
    return ConfigError([_line_of_text(path, problem) for problem in problems])


def _line_of_text(path: Path, problem: ConfigProblem) -> str:
    place = f"{path}:{problem.line}" if problem.line else str(path)
    return f"{place}: {problem.key}: {problem.message}" if problem.key else f"{place}: {problem.message}"
