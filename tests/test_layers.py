"""Imports go one way: left of `runs` nothing judges, right of it nothing touches an engine."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "specbench"

LAYER = {
    "config": 0,
    "observe": 1,
    "workloads": 1,
    "engines": 2,
    "load": 2,
    "runs": 3,
    "analysis": 4,
    "parity": 5,
    "verdict": 5,
    "report": 6,
    "sweep": 7,
    "cli": 8,
}

CONDUCTOR_MAY_NOT = {"report"}
"""`sweep` measures; what it says is `cli`'s to show."""


def imports(path: Path) -> list[tuple[int, str]]:
    """Rooms that a file imports at run time, with the line (type-checking imports included)."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [node.module, *(f"{node.module}.{a.name}" for a in node.names)]
        elif isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "specbench" and len(parts) > 1 and parts[1] in LAYER:
                found.append((getattr(node, "lineno", 0), parts[1]))
    return found


FILES = sorted(p for room in LAYER for p in (ROOT / room).rglob("*.py"))


def test_every_room_has_a_layer() -> None:
    rooms = {p.name for p in ROOT.iterdir() if (p / "__init__.py").exists()}
    assert rooms <= set(LAYER)
    assert len(FILES) > 50


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_one_way(path: Path) -> None:
    room = path.relative_to(ROOT).parts[0]
    wrong = [
        f"{path.relative_to(ROOT.parent)}:{line} imports {other}"
        for line, other in imports(path)
        if other != room and (LAYER[other] >= LAYER[room] or (room == "sweep" and other in CONDUCTOR_MAY_NOT))
    ]
    assert wrong == []


def test_no_engine_is_ever_imported() -> None:
    engines = {"vllm", "sglang", "torch", "transformers"}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                names = [node.module]
            assert not {n.split(".")[0] for n in names} & engines, path
