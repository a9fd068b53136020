"""Traffic weights from production: read before the first launch, written into the manifest with their digest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from specbench.config.model import closed_id
from specbench.observe.production import ProductionError, binned, read_running
from specbench.runs.checks import ProductionRecord

if TYPE_CHECKING:
    from specbench.config.source import LoadedConfig


def production_traffic(loaded: LoadedConfig) -> ProductionRecord | None:
    """What ``verdict.traffic_from`` says; null without it.

    Raises:
        ProductionError: the file cannot be used.
    """
    given = loaded.config.verdict.traffic_from
    if given is None:
        return None
    path = loaded.base_dir / given
    running = read_running(path)
    found = binned(running.share, loaded.config.loads.closed)
    if found is None:
        raise ProductionError(f"{path}: nothing ran in all that time: choose one with traffic")
    return ProductionRecord(
        file=Path(given).name,
        sha256=running.sha256,
        metrics=running.metrics,
        servers=running.servers,
        samples=running.samples,
        seconds=running.seconds,
        share={closed_id(c): w for c, w in found.share.items()},
        idle=found.idle,
        below=found.below,
        above=found.above,
    )
