"""The JSON Schema of a config file."""

from __future__ import annotations

import json
from typing import Any

from specbench.config.model import Config


def config_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of `Config`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Config.model_json_schema(),
        "title": "specbench config",
    }


def schema_text() -> str:
    """The schema as it is printed and kept in ``docs/config.schema.json``."""
    return json.dumps(config_schema(), indent=2, ensure_ascii=False) + "\n"
