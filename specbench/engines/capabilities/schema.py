"""What an engine can do about speculation, by version: the shape of the tables.

A table has one row for every span of versions in which something was the same, so a name may have several
rows: a method that died and came back, a setting whose values were renamed. `Capabilities` is the view of a
table at one version. Each row names its source: a file (and line) of the engine's package, or an issue.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

Version = tuple[int, ...]

_VERSION = re.compile(r"v?(\d+(?:\.\d+)*)(?:\.?post(\d+))?")
_PARTS = 4


def parse_version(text: str | None) -> Version | None:
    """A version as numbers that can be compared; None for one that is not known.

    Candidates and local labels count as the release itself: ``0.28.0rc1`` and ``0.28.0+cpu`` are ``0.28.0``.
    """
    match = _VERSION.match(text or "")
    if match is None:
        return None
    numbers = [int(part) for part in match[1].split(".")][:_PARTS]
    return (*numbers, *[0] * (_PARTS - len(numbers)), int(match[2] or 0))


@dataclass(frozen=True, slots=True)
class Span:
    """Versions from ``since`` (included) to ``until`` (excluded); null is open, or not recorded."""

    since: str | None = None
    until: str | None = None

    def holds(self, version: Version | None) -> bool:
        """Whether a version lies inside; an unknown version is taken for the newest."""
        since, until = parse_version(self.since), parse_version(self.until)
        if version is None:
            return until is None
        return (since is None or version >= since) and (until is None or version < until)

    def before(self, version: Version | None) -> bool:
        """Whether the span ended at or before a version."""
        until = parse_version(self.until)
        return until is not None and (version is None or version >= until)

    def __str__(self) -> str:
        if self.since and self.until:
            return f"{self.since} to before {self.until}"
        return f"since {self.since}" if self.since else f"before {self.until}" if self.until else ""


ALWAYS = Span()


class Draft(StrEnum):
    """Where the drafts come from."""

    REQUIRED = "required"  # a draft model or head must be named
    BUNDLED = "bundled"  # the target's own checkpoint holds it, unless one is named
    CLASS = "class"  # a Python class, package.module.Class
    NONE = "none"


@dataclass(frozen=True, slots=True)
class K:
    """What the number of draft tokens may be.

    ``default`` says what the engine takes when it is not given; empty when it must be given.
    """

    default: str = ""
    least: int = 1
    most: int | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Limit:
    """Something that the engine refuses or cannot do."""

    text: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias:
    """Another name that the engine takes for a method; ``mend`` says what to write today."""

    name: str
    span: Span = ALWAYS
    mend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One speculative method in a span of versions.

    Attributes:
        name: what to write as an arm's `method`.
        engine_name: how the engine itself calls it, where that differs.
        needs: Python distributions that must be in the engine's environment, with their pins.
        devices: where it runs; empty for wherever the engine does.
        runners: vLLM's model runners that have it; empty where there is but one.
        dynamic_k: whether a step may be told to draft fewer than K tokens.
        learns: whether it drafts from what it served before, so that repeated prompts flatter it.
        forgets: whether resetting the engine's cache makes it forget that.
        lossless: whether the output stays the target's.
        unnamed: whether the engine has no name for it and tells it from the checkpoint.
        dead: why no sweep can use it; empty when one can.
    """

    name: str
    what: str
    draft: Draft
    source: str
    k: K = K()
    engine_name: str = ""
    aliases: tuple[Alias, ...] = ()
    span: Span = ALWAYS
    needs: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    runners: tuple[str, ...] = ()
    dynamic_k: bool = False
    learns: bool = False
    forgets: bool = False
    lossless: bool = True
    unnamed: bool = False
    dead: str = ""
    limits: tuple[Limit, ...] = ()


class Kind(StrEnum):
    """Type of a setting's value."""

    INTEGER = "integer"
    NUMBER = "number"
    FLAG = "true or false"
    TEXT = "text"
    CHOICE = "choice"
    LIST = "list"
    NUMBERS = "list of numbers"
    RANGES = "list of [from, to, K]"
    MAPPING = "mapping"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One key of an arm's `settings` in a span of versions.

    Attributes:
        methods: the methods that read it; empty for all.
        strict: whether the engine refuses it for other methods, rather than ignoring it.
        choices: its values, when it is a choice.
        lossy: those of its values with which the output is no longer the target's.
        default: what the engine takes when it is absent.
        hint: what to do in versions after the span, and for choices that are no longer there.
        ignored: why the engine takes the key and does nothing with it; empty when it does.
        flag: the command-line flag of its own that carries it, without dashes; empty when none does.
    """

    name: str
    kind: Kind
    source: str
    what: str = ""
    methods: tuple[str, ...] = ()
    strict: bool = False
    choices: tuple[str, ...] = ()
    lossy: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    default: str = ""
    span: Span = ALWAYS
    hint: str = ""
    ignored: str = ""
    flag: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A command-line flag that came or went; ``hint`` is what to do where it is not."""

    name: str
    source: str
    span: Span = ALWAYS
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Never:
    """Something that is written about and never existed."""

    name: str
    hint: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Everything known about one engine.

    Attributes:
        newest: the version that an unknown version is taken for.
        owned: keys of the engine's own config that are fields of an arm, and which.
        prefix: what a setting's name may begin with without meaning another setting.
    """

    engine: str
    newest: str
    methods: tuple[Method, ...]
    settings: tuple[Setting, ...]
    flags: tuple[Flag, ...] = ()
    never: tuple[Never, ...] = ()
    owned: Mapping[str, str] = field(default_factory=dict)
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """A table at one version. Names are taken in any case and with dashes or underscores."""

    table: Table
    version: Version | None

    @property
    def assumed(self) -> bool:
        """Whether the version is not known, and the newest one is meant."""
        return self.version is None

    @property
    def version_text(self) -> str:
        """The version as people write it; the newest recorded one when it is not known."""
        if self.version is None:
            return self.table.newest
        *numbers, post = self.version
        while len(numbers) > 3 and numbers[-1] == 0:
            numbers.pop()
        return ".".join(map(str, numbers)) + (f".post{post}" if post else "")

    @property
    def methods(self) -> tuple[Method, ...]:
        """The methods that this version knows, dead ones included."""
        return tuple(m for m in self.table.methods if m.span.holds(self.version))

    @property
    def usable(self) -> tuple[str, ...]:
        """Names of the methods that a sweep can use."""
        return tuple(m.name for m in self.methods if not m.dead)

    @property
    def settings(self) -> tuple[Setting, ...]:
        """The settings that this version takes."""
        return tuple(s for s in self.table.settings if s.span.holds(self.version))

    @property
    def flags(self) -> tuple[Flag, ...]:
        """The flags about speculation that this version takes."""
        return tuple(f for f in self.table.flags if f.span.holds(self.version))

    def method(self, name: str | None) -> Method | None:
        """The method of a name or an alias; None when this version has none."""
        wanted = plain(name or "")
        for method in self.methods:
            if wanted == plain(method.name) or self.alias(method, wanted) is not None:
                return method
        return None

    def alias(self, method: Method, name: str) -> Alias | None:
        """The alias by which a method was named; None when it was its own name."""
        for alias in method.aliases:
            if plain(alias.name) == plain(name) and alias.span.holds(self.version):
                return alias
        return None

    def method_elsewhere(self, name: str) -> tuple[Span, ...]:
        """The spans in which other versions have a method or alias of this name."""
        wanted = plain(name)
        return tuple(
            span
            for m in self.table.methods
            for known, span in ((m.name, m.span), *((a.name, a.span) for a in m.aliases))
            if plain(known) == wanted and not span.holds(self.version) and str(span)
        )

    def setting(self, name: str) -> Setting | None:
        """The setting of a name; None when this version has none."""
        wanted = self._setting_name(name)
        return next((s for s in self.settings if s.name == wanted), None)

    def setting_history(self, name: str) -> tuple[Setting, ...]:
        """Every row of a setting, whatever the version, oldest first."""
        wanted = self._setting_name(name)
        return tuple(s for s in self.table.settings if s.name == wanted)

    def hint(self, name: str) -> str:
        """What to do about a setting that this version does not have; empty when nothing is known."""
        for row in reversed(self.setting_history(name)):
            if row.span.before(self.version) and row.hint:
                return row.hint
        return next((n.hint for n in self.table.never if plain(n.name) == self._setting_name(name)), "")

    def flag(self, name: str) -> Flag | None:
        """The flag of a name, if this version has it."""
        return next((f for f in self.flags if f.name == name.lstrip("-")), None)

    def _setting_name(self, name: str) -> str:
        return plain(name).removeprefix(self.table.prefix)


def plain(name: str) -> str:
    """A name in the tables' spelling: lower case, underscores."""
    return name.strip().lower().replace("-", "_")


def near(word: str, known: Iterable[str]) -> str:
    """A ``did you mean`` hint, or nothing."""
    found = difflib.get_close_matches(word, sorted(known), n=1, cutoff=0.6)
    return f"did you mean {found[0]!r}?" if found else ""
