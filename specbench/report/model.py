"""``result.json``: everything a report says, as data. The schema is versioned; add fields, never change them.

Built from a run directory alone (`specbench.report.build`) and read by every report format.
Times are milliseconds where the name says ``_ms``. A null always has its reason in ``why_null`` or ``notes``.
"""

from __future__ import annotations

from typing import Literal

import msgspec

SCHEMA = "specbench.result/1"

Decision = Literal["GO", "NO-GO", "INCONCLUSIVE", "INVALID"]
Grade = Literal["A", "B", "C", "D"]


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """A ratio of arm over baseline: geometric mean of the per-round ratios and its paired-t interval."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    per_round: tuple[float, ...] = ()
    why_null: str | None = None


class Quantiles(msgspec.Struct, frozen=True, kw_only=True):
    """Quantiles over the requests of one arm and load, all its valid launches pooled; milliseconds.

    ``p99`` is null below 1000 values, ``p95`` below 200 is marked in ``thin``.
    ``histogram`` holds (upper edge in ms, count) for drawing.
    """

    n: int
    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    thin: bool = False
    histogram: tuple[tuple[float, int], ...] = ()


class Acceptance(msgspec.Struct, frozen=True, kw_only=True):
    """How the draft did, from the engine's counters over the steady windows.

    Attributes:
        length: tokens per drafted step, bonus included, in [1, K+1].
        rate: accepted over proposed draft tokens.
        per_position: P(draft i accepted), unconditional.
        coverage: drafted steps over all steps.
        tokens_per_step: tokens per request and step, undrafted steps included.
        client_tokens_per_chunk: the client's own count, as a cross-check.
    """

    length: float | None = None
    rate: float | None = None
    per_position: tuple[float, ...] = ()
    coverage: float | None = None
    tokens_per_step: float | None = None
    client_tokens_per_chunk: float | None = None
    why_null: str | None = None


class CategoryCut(msgspec.Struct, frozen=True, kw_only=True):
    """One category of the mix at one load: speed per request, since categories share the batch."""

    category: str
    requests: int
    tpot_ms: float | None
    tpot_speedup: Ratio
    """Baseline TPOT over arm TPOT (greater is faster)."""
    tokens_per_chunk: float | None


class ArmAtLoad(msgspec.Struct, frozen=True, kw_only=True):
    """One arm at one load."""

    arm: str
    load: str
    concurrency: int
    cells: int
    """Valid cells (one per round)."""
    failed_cells: int
    invalid_cells: int
    output_tokens_per_s: float | None
    """Steady-window output throughput, mean over launches."""
    per_launch_tokens_per_s: tuple[float, ...]
    speedup: Ratio
    decision: Decision
    reasons: tuple[str, ...]
    ttft_ms: Quantiles
    tpot_ms: Quantiles
    chunk_gap_ms: Quantiles
    acceptance: Acceptance
    categories: tuple[CategoryCut, ...]
    requests: int
    failed_requests: int
    mean_output_tokens: float | None
    cached_prompt_share: float | None
    kv_usage_peak: float | None
    preemptions: float | None


class ArmSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One arm over all loads."""

    arm: str
    method: str | None
    draft: str | None
    k: int | None
    settings: dict[str, object]
    command: tuple[str, ...]
    """The exact command line of its first launch."""
    speculation_flags: tuple[str, ...]
    mix_speedup: Ratio
    """Over the traffic weights of the config; null for the baseline."""
    decision: Decision
    reasons: tuple[str, ...]
    startup_s: tuple[float, ...]
    kv_capacity_tokens: int | None
    max_concurrency: float | None
    """How many requests of the model's full length the KV memory holds."""
    memory_peak_bytes: int | None
    launches: int
    failed_launches: int


class Recommended(msgspec.Struct, frozen=True, kw_only=True):
    """What to deploy."""

    arm: str
    flags: tuple[str, ...]
    loads: tuple[int, ...]
    """Concurrencies at which it is GO."""


class FailureNote(msgspec.Struct, frozen=True, kw_only=True):
    """A launch or cell that failed, explained."""

    where: str
    kind: str
    summary: str
    mend: str
    log_lines: tuple[str, ...] = ()
    file: str = ""
    """Path inside the run directory."""


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """A warning with the action it asks for."""

    code: str
    message: str
    action: str


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Where it ran."""

    hostname: str
    cpu: str
    cores: int
    memory_gib: float
    gpus: tuple[str, ...]
    os: str
    python: str
    fingerprint: str


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The whole answer."""

    schema: str = SCHEMA
    specbench: str
    name: str
    run_id: str
    started_utc: str
    finished_utc: str | None
    duration_s: float | None
    complete: bool
    verdict: Decision
    exit_code: int
    headline: str
    """One sentence: the verdict in words."""
    reasons: tuple[str, ...]
    grade: Grade
    grade_reasons: tuple[str, ...]
    recommended: Recommended | None
    min_speedup: float
    confidence: float
    traffic: dict[str, float]
    """Load id to share, adding up to 1."""
    target: str
    engine: str
    """Kind and version."""
    parity: str
    """``not run`` until it is."""
    rounds: int
    loads: tuple[str, ...]
    categories: tuple[str, ...]
    workload: str
    """One line: source, requests, caps, sampling."""
    workload_digest: str
    arms: tuple[ArmSummary, ...]
    results: tuple[ArmAtLoad, ...]
    engine_differences: tuple[Note, ...]
    """Settings that differ between arms: expected ones explained, others named."""
    warnings: tuple[Note, ...]
    failures: tuple[FailureNote, ...]
    machine: Machine
    config_yaml: str
    files: tuple[str, ...] = ()
    """Files of the run directory that the numbers come from."""

    def at(self, arm: str, load: str) -> ArmAtLoad | None:
        """The result of an arm at a load, if there is one."""
        return next((r for r in self.results if r.arm == arm and r.load == load), None)
