"""The records of a run directory, versioned. Everything right of `runs` reads these and nothing else.

Times named ``_s`` inside a cell are seconds on the cell's monotonic clock (zero at the start of the
measured requests); ``_unix_s`` is wall-clock time.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

MANIFEST_SCHEMA: Final = "specbench.manifest/1"
LAUNCH_SCHEMA: Final = "specbench.launch/1"
CELL_SCHEMA: Final = "specbench.cell/1"
COUNTERS_SCHEMA: Final = "specbench.counters/1"

MEASUREMENT: Final = 1
"""Version of how a cell is measured; part of every cell's identity."""


class ArmRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An arm as planned; the baseline has no method."""

    id: str
    method: str | None = None
    draft: str | None = None
    k: int | None = None
    settings: dict[str, Any] = {}
    args: dict[str, Any] = {}


class LoadRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A load as planned, with the digest of the requests that its cells send."""

    id: str
    concurrency: int
    requests: int
    workload_digest: str
    repeats: bool = False


class PlannedLaunchRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One launch in the order of the plan."""

    id: str
    round: int
    arm: str
    loads: tuple[str, ...]


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """``manifest.json``: what was decided before the first launch. Never changed afterwards."""

    schema: str = MANIFEST_SCHEMA
    run_id: str
    name: str
    created_utc: str
    specbench: str
    config: dict[str, Any]
    config_text: str
    meaning: dict[str, Any]
    meaning_digest: str
    target: str
    engine_kind: str
    engine_version: str
    machine: dict[str, Any]
    git: dict[str, Any] | None
    arms: tuple[ArmRecord, ...]
    loads: tuple[LoadRecord, ...]
    launches: tuple[PlannedLaunchRecord, ...]
    rounds: int
    min_speedup: float
    confidence: float
    traffic: dict[str, float]
    ttft_p95_limit_ms: float | None
    tpot_p95_limit_ms: float | None
    workload: str
    categories: tuple[str, ...]
    output_mode: str
    text_sources: tuple[str, ...]


class FailureRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An explained failure."""

    kind: str
    summary: str
    mend: str
    log_lines: tuple[str, ...] = ()


class LaunchRecord(msgspec.Struct, frozen=True, kw_only=True):
    """``launches/ID/launch.json``: one life of one engine process."""

    schema: str = LAUNCH_SCHEMA
    id: str
    arm: str
    round: int
    status: Literal["ready", "failed", "stopped", "died"]
    started_utc: str
    argv: tuple[str, ...]
    speculation_flags: tuple[str, ...]
    startup_s: float | None = None
    version: str | None = None
    speculating: bool | None = None
    max_model_len: int | None = None
    kv_capacity_tokens: int | None = None
    settings: dict[str, Any] = {}
    speculation: dict[str, Any] = {}
    facts: tuple[str, ...] = ()
    memory_peak_bytes: int | None = None
    stop: dict[str, Any] | None = None
    failure: FailureRecord | None = None


class WindowMarks(msgspec.Struct, frozen=True, kw_only=True):
    """When the client saw the steady window open and close; null when it did not."""

    opened_s: float | None
    closed_s: float | None


class CellRecord(msgspec.Struct, frozen=True, kw_only=True):
    """``cells/ID/cell.json``: one arm at one load in one launch.

    ``status`` is ``ok`` (measured; analysis may still find it invalid), ``failed`` (with ``failure``)
    or ``interrupted`` (kept for the record; a resume measures it again).
    """

    schema: str = CELL_SCHEMA
    id: str
    identity: dict[str, Any]
    arm: str
    load: str
    concurrency: int
    round: int
    launch: str
    status: Literal["ok", "failed", "interrupted"]
    started_utc: str
    epoch_unix_s: float | None = None
    duration_s: float | None = None
    window: WindowMarks | None = None
    client: dict[str, Any] | None = None
    prefix_cache_reset: bool | None = None
    warmup_ok: int | None = None
    failure: FailureRecord | None = None
    notes: tuple[str, ...] = ()


class Scrape(msgspec.Struct, frozen=True, kw_only=True):
    """The engine's metrics page at one moment: raw, and in canonical names."""

    at: Literal["start", "window_open", "window_close", "end"]
    t_s: float
    """When the answer had arrived, on the cell's clock."""
    asked_s: float
    canonical: dict[str, Any]
    raw: str


class CellCounters(msgspec.Struct, frozen=True, kw_only=True):
    """``cells/ID/counters.json``."""

    schema: str = COUNTERS_SCHEMA
    scrapes: tuple[Scrape, ...]
    errors: tuple[str, ...] = ()

    def find(self, at: str) -> Scrape | None:
        """The scrape of one moment."""
        return next((s for s in self.scrapes if s.at == at), None)
