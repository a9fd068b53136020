"""The records of a run directory, versioned. Everything right of `runs` reads these and nothing else.

Times named ``_s`` inside a cell are seconds on the cell's monotonic clock (zero at the start of the
measured requests); ``_unix_s`` is wall-clock time.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from specbench.runs.checks import ConfirmsRecord, OpenCheckRecord, ProductionRecord
from specbench.runs.observation import Observation
from specbench.workloads.loading import SourceAccount

MANIFEST_SCHEMA: Final = "specbench.manifest/1"
LAUNCH_SCHEMA: Final = "specbench.launch/1"
CELL_SCHEMA: Final = "specbench.cell/1"
CALIBRATION_SCHEMA: Final = "specbench.calibration/1"
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
    engine: str = ""
    """Name in the manifest's ``other_engines``; empty for the main engine."""
    memory: Literal["none", "until_reset", "always"] = "none"
    """How long its drafter keeps what it saw: with ``always``, each of its cells has a launch of its own."""
    lossy: str = ""
    """Why its output is not the target's by configuration, as the engine's adapter knows it."""
    wrong_output: str = ""
    """The bug of this engine version that makes its output wrong with this workload, where one is known."""
    same_server: bool = False
    """Whether it was attached to the baseline's own server (``engine.allow_same``): compared, never judged."""
    matched: bool = False
    """Whether this is a matched baseline: without speculation, with its side effects; compared, never judged."""

    @property
    def baseline(self) -> str:
        """Id of the baseline that it is compared with: the one on the same engine."""
        return f"baseline@{self.engine}" if self.engine else "baseline"

    @property
    def family(self) -> str:
        """Equal for arms that differ in K alone."""
        rest = (self.method, self.draft, self.settings, self.args, self.engine)
        return msgspec.json.encode(rest, order="deterministic").decode()


class LoadRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A load as planned, with the digest of the requests that its cells send."""

    id: str
    concurrency: int
    requests: int
    workload_digest: str
    repeats: bool = False
    kind: Literal["closed", "open", "trace"] = "closed"
    rate_per_s: float | None = None
    """Offered by an open load."""
    title: str | None = None
    """In words; null in runs from before there were other loads than closed ones."""


class PlannedLaunchRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One launch in the order of the plan."""

    id: str
    round: int
    arm: str
    loads: tuple[str, ...]


class CalibrationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A baseline against itself: ``ratios`` of equal launches, one per pair, over the traffic and by load."""

    schema: str = CALIBRATION_SCHEMA
    created_utc: str
    fingerprint: str
    engine: str
    """Kind and version."""
    run_id: str
    target: str
    passed: bool
    reason: str
    ratios: tuple[float, ...]
    by_load: dict[str, tuple[float, ...]] = {}
    log_sd: float | None = None


class RuleRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How many launches there are and what they are tested by, registered before the first one.

    The other parts of the rule (required speed-up, confidence, traffic, limits) are in the manifest itself.
    ``explore_rounds`` rounds of all arms come first when there are several; then at most ``max_rounds`` of the
    best one, looked at after ``looks`` valid pairs. ``load_order`` is the order in which loads are tested.
    """

    strategy: Literal["full", "adaptive"] = "full"
    looks: tuple[int, ...] = ()
    max_rounds: int = 0
    explore_rounds: int = 0
    ladders: tuple[dict[str, int], ...] = ()
    """Arms that differ in K alone, with their K; four of each are explored, and a curve picks among all."""
    variance_prior: bool = False
    margins: dict[str, float] = {}
    load_order: tuple[str, ...] = ()
    order_seed: int | None = None


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
    other_engines: dict[str, str] = {}
    """Name to kind and version."""
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
    source: SourceAccount | None = None
    """What became of the rows of the workload's source."""
    rule: RuleRecord = RuleRecord()
    calibration: CalibrationRecord | None = None
    """The latest of this machine and engine build when the run began."""
    production: ProductionRecord | None = None
    """Where ``traffic`` was read from; null when the config gives it."""
    open_check: OpenCheckRecord | None = None
    confirms: ConfirmsRecord | None = None
    """The suggestion of an earlier run that this one measures."""

    def engine_of(self, arm: ArmRecord) -> tuple[str, str]:
        """Kind and version of the engine that an arm runs on."""
        if not arm.engine:
            return self.engine_kind, self.engine_version
        kind, _, version = self.other_engines[arm.engine].partition(" ")
        return kind, version


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
    weights_bytes: int | None = None
    """Of all weights on the device that holds most, as the engine says; see `engines.base.Description`."""
    draft_weights_bytes: int | None = None
    weights_load_s: float | None = None
    max_concurrency: float | None = None
    """Requests of the model's full length that fit, as the engine says."""
    max_running_requests: int | None = None
    """Requests that the engine runs at once."""
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
    stage: Literal["explore", "confirm"] | None = None
    """Of an adaptive sweep: only cells that confirm enter the verdict."""
    load_kind: Literal["closed", "open", "trace"] = "closed"
    offered_per_s: float | None = None
    """Arrivals per second that the schedule asked for, turns of sessions left out."""
    delivered_per_s: float | None = None
    """The same arrivals by when they were sent."""
    failure: FailureRecord | None = None
    notes: tuple[str, ...] = ()
    machine: Observation | None = None
    """Null in runs from before the machine was observed, and when nothing was sent."""


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
