"""Nested settings on one level, comparable between arms."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def flatten(value: Json, prefix: str = "") -> Json:
    """Nested mappings as one level with dotted keys; lists stay values."""
    flat: Json = {}
    for key, item in value.items():
        name = f"{prefix}{key}"
        if isinstance(item, dict) and item:
            flat.update(flatten(item, f"{name}."))
        else:
            flat[name] = item
    return flat
