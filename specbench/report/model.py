"""``result.json``: everything a report says, as data. The schema is versioned; add fields, never change them.

Built from a run directory alone (`specbench.report.build`) and read by every report format.
Times are milliseconds where the name says ``_ms``. A null always has its reason in ``why_null`` or ``notes``.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from specbench.report.policy_model import OpenCheckResult, Policy

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
    """How the draft did, in the steady windows.

    Attributes:
        length: tokens per drafted step, bonus included, in [1, K+1].
        rate: accepted over proposed draft tokens.
        break_even: the rate at which the arm would be just as fast as the baseline; above 1 where no draft could
            be; closed loads only.
        per_position: P(draft i accepted), unconditional.
        coverage: drafted steps over all steps.
        tokens_per_step: tokens per request and step, undrafted steps included.
        client_tokens_per_chunk: the client's own count, as a cross-check.
        source: what was counted: the engine's counters, or the counts that it sends with each request.
        bias: what is known to be off about that count.
    """

    length: float | None = None
    rate: float | None = None
    break_even: float | None = None
    per_position: tuple[float, ...] = ()
    coverage: float | None = None
    tokens_per_step: float | None = None
    client_tokens_per_chunk: float | None = None
    why_null: str | None = None
    source: str | None = None
    bias: str | None = None


class CategoryCut(msgspec.Struct, frozen=True, kw_only=True):
    """One category of the mix at one load: speed per request, since categories share the batch."""

    category: str
    requests: int
    tpot_ms: float | None
    tpot_speedup: Ratio
    """Baseline TPOT over arm TPOT (greater is faster)."""
    tokens_per_chunk: float | None


class LoadBinCut(msgspec.Struct, frozen=True, kw_only=True):
    """Requests of an open or trace load that met about the same load: tertiles of the baseline's own count.

    Every round has its own bins; ``low`` and ``high`` are the fewest and most requests running in any round.
    """

    name: Literal["low", "mid", "high"]
    low: int
    high: int
    requests: int
    latency_ms: float | None
    """Mean end-to-end latency of this arm, over all valid launches."""
    speedup: Ratio
    """Baseline's mean latency over the arm's, of the same requests."""


class TailRatio(msgspec.Struct, frozen=True, kw_only=True):
    """A tail latency over the baseline's: the percentile of each launch, paired within rounds; more is worse."""

    metric: str
    """``ttft_p95``, ``tpot_p99`` or ``chunk_gap_p99``."""
    ratio: Ratio
    """Its interval leaves 2.5 % on each side."""
    margin: float | None = None
    """Worsening that is allowed, of an adaptive sweep; 0.15 is 15 %."""
    state: Literal["pass", "fail", "open"] | None = None
    """Whether it is kept; null where nothing was asked or nothing can be estimated."""


class MachineAtLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The machine while one arm ran at one load: means over the steady windows of its valid cells, peaks of all.

    Figures of several GPUs: power and its limit are added up, the rest is their mean, memory the fullest one's.
    Null is not measured.
    """

    gpus: int | None = None
    """That the launches used."""
    gpu_utilization: float | None = None
    """Share of time in which any kernel ran (NVML): not how full the SMs were."""
    gpu_memory_peak_bytes: int | None = None
    gpu_power_w: float | None = None
    gpu_power_limit_w: float | None = None
    gpu_sm_clock_mhz: float | None = None
    gpu_throttled: float | None = None
    """Share of samples in which something held the clocks down."""
    gpu_throttle_reasons: dict[str, float] = {}
    tokens_per_joule: float | None = None
    """Output tokens over the energy of the GPUs, both of the window."""
    tokens_per_joule_ratio: Ratio = Ratio()
    """Arm over baseline: more than 1 is less energy per token."""
    energy_source: str | None = None
    energy_why_null: str | None = None
    gpu_why_null: str | None = None
    cpu_share: float | None = None
    """Of all cores of the machine, everything that runs on it."""
    engine_cores: float | None = None
    memory_peak_bytes: int | None = None
    engine_memory_peak_bytes: int | None = None
    host_why_null: str | None = None


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
    kind: Literal["closed", "open", "trace"] = "closed"
    """Of an open or trace load ``speedup`` compares mean end-to-end latency, not throughput."""
    title: str | None = None
    """The load in words."""
    latency_ms: Quantiles = Quantiles(n=0)
    """Intended send to end, of requests due in the window; open and trace loads only."""
    offered_per_s: float | None = None
    delivered_per_s: float | None = None
    load_bins: tuple[LoadBinCut, ...] = ()
    stage: Literal["explore", "confirm"] | None = None
    """Of an adaptive sweep: the rounds that the numbers come from. Only those that confirm enter the verdict."""
    tails: tuple[TailRatio, ...] = ()
    speedup_adjusted: Ratio | None = None
    """Beside ``speedup``, never instead of it: throughput at the acceptance pooled over the arm's cells (acceptance
    control variate); null where it does not apply."""
    adjustment: str | None = None
    """Why there is no ``speedup_adjusted``, or what it rests on."""
    machine: MachineAtLoad | None = None
    """Null without a valid cell."""


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
    engine: str = ""
    """Name in ``engines``; empty for the main engine."""
    stage: Literal["explore", "confirm"] | None = None
    weights_bytes: int | None = None
    """Of all weights, drafts included, on the device that holds most, as the engine says."""
    draft_weights_bytes: int | None = None
    """The draft's part of them."""
    weights_load_s: float | None = None
    max_running_requests: int | None = None
    """Requests that the engine runs at once."""
    matched: bool = False
    """Whether it is a matched baseline: without speculation but with its side effects; never judged."""


class ParityTask(msgspec.Struct, frozen=True, kw_only=True):
    """Mean task scores of one arm and of the baseline, paired by prompt; nulls where nothing could be compared."""

    arm: str
    decision: Literal["EQUIVALENT", "FAIL", "NOT SHOWN"]
    prompts: int
    mean_arm: float | None
    mean_baseline: float | None
    difference: float | None
    """Arm less baseline."""
    low: float | None
    """With ``high`` the 90% interval of the difference."""
    high: float | None
    p: float | None
    """Two-sided, that there is no difference."""
    margin: float
    """Largest difference that counts as equal."""
    prompts_needed: int | None
    """Null where it is decided."""
    words: str


class MatchedParts(msgspec.Struct, frozen=True, kw_only=True):
    """The speed-up of one arm at one load taken apart by the matched baseline; the product of both is the speed-up."""

    arm: str
    load: str
    side_effects: Ratio
    """Matched baseline over the baseline: what speculation does to the engine besides, without speculation."""
    speculation: Ratio
    """Arm over the matched baseline."""
    unmatched: tuple[str, ...] = ()
    """Known side effects in which arm and matched baseline still differ."""


class EngineAtLoad(msgspec.Struct, frozen=True, kw_only=True):
    """One engine of a run with several, at one load; ratios are over the main engine's baseline."""

    engine: str
    """Its name, or the main engine's kind."""
    load: str
    concurrency: int
    baseline: str
    baseline_tokens_per_s: float | None
    baseline_ratio: Ratio
    fastest: str
    """The arm with the highest throughput, the baseline included."""
    fastest_tokens_per_s: float | None
    fastest_ratio: Ratio


class Recommended(msgspec.Struct, frozen=True, kw_only=True):
    """What to deploy."""

    arm: str
    flags: tuple[str, ...]
    loads: tuple[int, ...]
    """Concurrencies at which it is GO."""
    load_ids: tuple[str, ...] = ()
    """All loads at which it is GO, closed or not."""


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
    engines: tuple[EngineAtLoad, ...] = ()
    """Engines beside each other; empty for a run of one engine."""
    config_yaml: str
    strategy: Literal["full", "adaptive"] = "full"
    looks: tuple[int, ...] = ()
    """Of an adaptive sweep: numbers of confirming pairs at which the data were looked at."""
    files: tuple[str, ...] = ()
    """Files of the run directory that the numbers come from."""
    headroom: tuple[Note, ...] = ()
    """How busy the GPUs were in the baselines, load by load: context for the verdict."""
    policy: Policy | None = None
    """What to deploy at which load."""
    open_check: OpenCheckResult | None = None
    """Null for a run without one."""
    matched: tuple[MatchedParts, ...] = ()
    """Empty without a matched baseline."""
    parity_task: tuple[ParityTask, ...] = ()
    """Empty without a scorer (``parity.task``)."""

    def at(self, arm: str, load: str) -> ArmAtLoad | None:
        """The result of an arm at a load, if there is one."""
        return next((r for r in self.results if r.arm == arm and r.load == load), None)
