"""The JSON Schema that editors use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from specbench.config.schema import config_schema, schema_text

DOCUMENT = Path(__file__).parents[2] / "docs" / "config.schema.json"


def test_the_document_is_current() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == schema_text(), (
        "run: specbench schema --out docs/config.schema.json"
    )


def test_every_key_is_described() -> None:
    schema = config_schema()
    silent = []

    def walk(section: Any, place: str) -> None:
        for name, value in section.get("properties", {}).items():
            if "description" not in value:
                silent.append(f"{place}.{name}")
        for inner in section.get("anyOf", []):
            walk(inner, place)

    walk(schema, "config")
    for name, section in schema["$defs"].items():
        walk(section, name)
    assert silent == []


def test_shorthands_are_allowed() -> None:
    schema = config_schema()
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert schema["$defs"]["Target"]["anyOf"][0]["type"] == "string"
    kinds = {
        option["type"] for option in schema["$defs"]["EngineConfig"]["properties"]["startup_timeout"]["anyOf"]
    }
    assert kinds == {"number", "string"}
    assert schema["additionalProperties"] is False
