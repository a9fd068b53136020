"""What each engine can do about speculation, by version.

``capabilities("vllm", "0.15.0").method("eagle3")`` is a `Method` or None.
"""

from __future__ import annotations

from typing import Final

from specbench.engines.capabilities.schema import Capabilities, Table, parse_version
from specbench.engines.capabilities.sglang import TABLE as _SGLANG
from specbench.engines.capabilities.vllm import TABLE as _VLLM

TABLES: Final[dict[str, Table]] = {table.engine: table for table in (_VLLM, _SGLANG)}


def capabilities(engine: str, version: str | None = None) -> Capabilities:
    """The capabilities of an engine's version; of the newest one when the version is not known.

    Raises:
        KeyError: there is no table for such an engine.
    """
    return Capabilities(TABLES[engine], parse_version(version))


__all__ = ["TABLES", "Capabilities", "capabilities"]
