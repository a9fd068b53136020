"""How ``specbench engines`` looks on a terminal. Prints; decides nothing."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from specbench.engines.capabilities.schema import Capabilities, Draft, Method, Setting

_DRAFT = {
    Draft.REQUIRED: "a model",
    Draft.BUNDLED: "the target's, or a model",
    Draft.CLASS: "a class",
    Draft.NONE: "none",
}


def show_engine(known: Capabilities, console: Console) -> None:
    """Methods, settings, what is not in this version, what never was."""
    table = known.table
    title = f"{table.engine} {known.version_text}"
    console.print(Text(title, style="bold"))
    if known.assumed:
        console.print(f"The newest version that is recorded. Others: --engine {table.engine} --version X")
    _methods(known, console)
    _settings(known, console)
    _missing(known, console)
    if table.never:
        _heading(console, "Never existed")
        rows = _table("name", "instead")
        for never in table.never:
            rows.add_row(never.name, never.hint)
        console.print(rows)


def _methods(known: Capabilities, console: Console) -> None:
    _heading(console, "Methods")
    rows = _table("method", "draft", "K", "versions", "what")
    for method in known.methods:
        if not method.dead:
            rows.add_row(method.name, _DRAFT[method.draft], _k(method), str(method.span), method.what)
    console.print(rows)
    _heading(console, "Good to know")
    rows = _table("method", "")
    for method in known.methods:
        notes = _notes(known, method)
        for number, note in enumerate(notes):
            rows.add_row(method.name if number == 0 else "", note)
    console.print(rows)


def _k(method: Method) -> str:
    least = f"{method.k.least} to {method.k.most}" if method.k.most else f"from {method.k.least}"
    return f"{least}; else {method.k.default}" if method.k.default else least


def _notes(known: Capabilities, method: Method) -> list[str]:
    if method.dead:
        return [f"cannot be used: {method.dead}"]
    notes = []
    names = [alias.name for alias in method.aliases if alias.span.holds(known.version)]
    if names:
        notes.append(f"also called {', '.join(names)}")
    if method.needs:
        notes.append(f"needs {', '.join(method.needs)} in the engine's environment")
    if method.devices:
        notes.append(f"runs on {', '.join(method.devices)}")
    if method.runners and method.runners != ("V1", "V2"):
        notes.append(
            f"{'engine' if method.runners == ('V0',) else 'model runner'} {', '.join(method.runners)} only"
        )
    if method.learns:
        forgets = "a cache reset makes it forget" if method.forgets else "it cannot be made to forget"
        notes.append(f"learns from the requests it served; {forgets}")
    if method.dynamic_k:
        notes.append("K may change with the load")
    return [*notes, *(limit.text for limit in method.limits)]


def _settings(known: Capabilities, console: Console) -> None:
    _heading(console, "Settings")
    rows = _table("setting", "value", "default", "of", "versions", "what")
    for setting in known.settings:
        rows.add_row(
            setting.name,
            _value(setting),
            setting.default,
            ", ".join(setting.methods),
            str(setting.span),
            setting.what or setting.ignored,
        )
    console.print(rows)


def _value(setting: Setting) -> str:
    if setting.choices:
        lossy = {value: f"{value} (lossy)" for value in setting.lossy}
        return " | ".join(lossy.get(value, value) for value in setting.choices)
    return str(setting.kind)


def _missing(known: Capabilities, console: Console) -> None:
    here = {setting.name for setting in known.settings}
    names = {method.name for method in known.methods}
    spans: dict[tuple[str, str], list[str]] = {}
    for name, span, hint in (
        *((m.name, m.span, "") for m in known.table.methods if m.name not in names),
        *((s.name, s.span, known.hint(s.name)) for s in known.table.settings if s.name not in here),
        *((f"--{f.name}", f.span, f.hint) for f in known.table.flags if f not in known.flags),
    ):
        spans.setdefault((name, hint), []).append(str(span))
    if not spans:
        return
    _heading(console, "In other versions only")
    rows = _table("name", "versions", "here")
    for (name, hint), when in spans.items():
        rows.add_row(name, ", ".join(when), hint)
    console.print(rows)


def _heading(console: Console, text: str) -> None:
    console.print()
    console.print(Text(text, style="bold"))


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for number, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=number == 0)
    return table
