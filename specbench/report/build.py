"""From a run directory to a `Result`. Pure: the same directory gives the same result next year."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from specbench.analysis.acceptance import figures, pool
from specbench.analysis.compare import PairedRatio, paired
from specbench.analysis.run import BASELINE, ArmLoad, RunAnalysis, analyse
from specbench.report import model as m
from specbench.verdict.rule import Verdict, judge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from specbench.analysis.cell import Cell
    from specbench.analysis.differences import Difference
    from specbench.observe.counters import EngineCounters
    from specbench.runs.records import ArmRecord, LaunchRecord
    from specbench.runs.rundir import RunDir

HISTOGRAM_BINS: Final = 24
MIN_FOR_P99: Final = 1000
MIN_FOR_P95: Final = 200


def build(run: RunDir) -> m.Result:
    """Analyse, judge and collect.

    Raises:
        RunFileError: a file is missing or damaged.
    """
    analysis = analyse(run)
    verdict = judge(analysis)
    manifest = analysis.manifest
    events = run.journal.read()
    finished = next((e["t"] for e in reversed(events) if e.get("event") == "sweep_finished"), None)
    return m.Result(
        specbench=manifest.specbench,
        name=manifest.name,
        run_id=manifest.run_id,
        started_utc=manifest.created_utc,
        finished_utc=finished,
        duration_s=run.active_s() or None,
        complete=analysis.complete,
        verdict=verdict.decision,
        exit_code=int(verdict.exit_code),
        headline=verdict.headline,
        reasons=verdict.reasons,
        grade=verdict.grade,
        grade_reasons=verdict.grade_reasons,
        recommended=_recommended(analysis, verdict),
        min_speedup=manifest.min_speedup,
        confidence=manifest.confidence,
        traffic=_shares(manifest.traffic),
        target=manifest.target,
        engine=f"{manifest.engine_kind} {manifest.engine_version}",
        parity="not run",
        rounds=manifest.rounds,
        loads=tuple(x.id for x in manifest.loads),
        categories=manifest.categories,
        workload=manifest.workload,
        workload_digest=hashlib.sha256(
            "".join(x.workload_digest for x in manifest.loads).encode()
        ).hexdigest(),
        arms=tuple(_arm(analysis, verdict, arm) for arm in manifest.arms),
        results=tuple(_at(analysis, verdict, x) for x in analysis.at.values()),
        engine_differences=tuple(_difference(d) for d in analysis.differences),
        warnings=_warnings(analysis, events),
        failures=_failures(analysis),
        machine=_machine(manifest.machine),
        config_yaml=manifest.config_text,
        files=tuple(sorted(str(p.relative_to(run.path)) for p in run.path.rglob("*") if _is_source(p.name))),
    )


def _is_source(name: str) -> bool:
    return name in {
        "manifest.json",
        "journal.jsonl",
        "launch.json",
        "engine.log",
        "cell.json",
        "counters.json",
        "requests.parquet",
    }


def _machine(facts: dict[str, Any]) -> m.Machine:
    gpus = Counter(f"{g['name']} {g['total_bytes'] / 2**30:.0f} GiB" for g in facts.get("gpus", ()))
    return m.Machine(
        hostname=facts["hostname"],
        cpu=facts["cpu"],
        cores=facts["cores"],
        memory_gib=facts["memory_bytes"] / 2**30,
        gpus=tuple(f"{n} x {name}" for name, n in gpus.items()),
        os=facts["os"],
        python=facts["python"],
        fingerprint=facts["fingerprint"],
    )


def _shares(traffic: dict[str, float]) -> dict[str, float]:
    total = sum(traffic.values())
    return {k: v / total for k, v in traffic.items()}


def _ratio(ratio: PairedRatio, confidence: float) -> m.Ratio:
    interval = ratio.interval(confidence)
    why = ratio.why_null
    if interval is None and ratio.value is not None:
        why = "one round: no interval"
    return m.Ratio(
        value=ratio.value,
        low=interval[0] if interval else None,
        high=interval[1] if interval else None,
        per_round=ratio.per_round,
        why_null=why,
    )


def _quantiles(arrays: Sequence[NDArray[np.float64]]) -> m.Quantiles:
    values = np.concatenate(arrays) * 1000 if arrays else np.empty(0)
    n = len(values)
    if n == 0:
        return m.Quantiles(n=0)
    p50, p90, p95, p99 = (float(x) for x in np.quantile(values, [0.5, 0.9, 0.95, 0.99]))
    return m.Quantiles(
        n=n,
        mean=float(values.mean()),
        p50=p50,
        p90=p90,
        p95=p95,
        p99=p99 if n >= MIN_FOR_P99 else None,
        thin=n < MIN_FOR_P95,
        histogram=_histogram(values),
    )


def _histogram(values: NDArray[np.float64]) -> tuple[tuple[float, int], ...]:
    """(upper edge, count): equal bins up to the 99.5th percentile, then one for the rest, so that a single
    outlier does not squeeze everything into one bar."""
    low, high, top = float(values.min()), float(np.quantile(values, 0.995)), float(values.max())
    if high - low <= 1e-9 * max(1.0, abs(high)):
        return ((top, len(values)),)
    edges = np.linspace(low, high, HISTOGRAM_BINS + 1)
    counts, _ = np.histogram(values, bins=edges)
    bars = [(float(e), int(c)) for e, c in zip(edges[1:], counts, strict=True)]
    rest = len(values) - sum(c for _, c in bars)
    return (*bars, (top, rest)) if rest else tuple(bars)


def _at(analysis: RunAnalysis, verdict: Verdict, x: ArmLoad) -> m.ArmAtLoad:
    valid = x.valid
    times = [c.times for c in valid if c.times is not None]
    speeds = [t.output_tokens_per_s for t in times if t.output_tokens_per_s is not None]
    windows = [c.window_counters for c in valid if c.window_counters is not None]
    pooled = pool(windows)
    decided = verdict.at.get((x.arm.id, x.load.id))
    outputs = [c.mean_output_tokens for c in valid if c.mean_output_tokens is not None]
    cached, prompts = pooled.cached_prompt_tokens, pooled.prompt_tokens
    measured = any(c.record.status == "ok" for c in x.cells)
    return m.ArmAtLoad(
        arm=x.arm.id,
        load=x.load.id,
        concurrency=x.load.concurrency,
        cells=len(valid),
        failed_cells=sum(1 for c in x.cells if c.record.status == "failed"),
        invalid_cells=sum(1 for c in x.cells if c.record.status == "ok" and not c.valid),
        output_tokens_per_s=sum(speeds) / len(speeds) if speeds else None,
        per_launch_tokens_per_s=tuple(speeds),
        speedup=_ratio(x.speedup, analysis.manifest.confidence),
        decision=decided.decision if decided else ("INVALID" if not valid and measured else "INCONCLUSIVE"),
        reasons=decided.reasons if decided else ("the baseline is what the others are compared with",),
        ttft_ms=_quantiles([t.ttft_s for t in times]),
        tpot_ms=_quantiles([t.tpot_s for t in times]),
        chunk_gap_ms=_quantiles([t.chunk_gap_s for t in times]),
        acceptance=_acceptance(windows, valid),
        categories=_categories(analysis, x),
        requests=sum(c.requests for c in x.cells),
        failed_requests=sum(c.failed_requests for c in x.cells),
        mean_output_tokens=sum(outputs) / len(outputs) if outputs else None,
        cached_prompt_share=cached / prompts if cached is not None and prompts else None,
        kv_usage_peak=pooled.kv_usage,
        preemptions=pooled.preemptions,
    )


def _acceptance(windows: list[EngineCounters], valid: Sequence[Cell]) -> m.Acceptance:
    cuts = [t for c in valid if c.times is not None for t in c.times.by_category.values()]
    chunks = sum(t.decode_chunks for t in cuts)
    per_chunk = sum(t.decode_tokens for t in cuts) / chunks if chunks else None
    if not windows:
        return m.Acceptance(
            client_tokens_per_chunk=per_chunk, why_null="no engine counters in a valid window"
        )
    f = figures(pool(windows))
    return m.Acceptance(
        length=f.length,
        rate=f.rate,
        per_position=f.per_position,
        coverage=f.coverage,
        tokens_per_step=f.tokens_per_step,
        client_tokens_per_chunk=per_chunk,
        why_null=f.why_null,
    )


def _categories(analysis: RunAnalysis, x: ArmLoad) -> tuple[m.CategoryCut, ...]:
    base = analysis.at[BASELINE, x.load.id]
    cuts = []
    for category in analysis.manifest.categories:
        own = _tpot_by_round(x.valid, category)
        ratio = paired(_tpot_by_round(base.valid, category), own, "no pair of rounds has this category")
        times = [
            t for c in x.valid if c.times is not None and (t := c.times.by_category.get(category)) is not None
        ]
        tokens, chunks = sum(t.decode_tokens for t in times), sum(t.decode_chunks for t in times)
        cuts.append(
            m.CategoryCut(
                category=category,
                requests=sum(t.requests for t in times),
                tpot_ms=1000 * sum(t.decode_s for t in times) / tokens if tokens else None,
                tpot_speedup=_ratio(ratio, analysis.manifest.confidence),
                tokens_per_chunk=tokens / chunks if chunks else None,
            )
        )
    return tuple(cuts)


def _tpot_by_round(cells: Sequence[Cell], category: str) -> dict[int, float]:
    found = {}
    for c in cells:
        cut = c.times.by_category.get(category) if c.times is not None else None
        if cut is not None and cut.tpot_s:
            found[c.record.round] = cut.tpot_s
    return found


def _arm(analysis: RunAnalysis, verdict: Verdict, arm: ArmRecord) -> m.ArmSummary:
    launches = analysis.launches_of(arm.id)
    ready = [x for x in launches if x.status != "failed"]
    first: LaunchRecord | None = next(iter(ready or launches), None)
    decided = verdict.arms.get(arm.id)
    ratio = analysis.mix.get(arm.id)
    kv = first.kv_capacity_tokens if first else None
    length = first.max_model_len if first else None
    memory = [x.memory_peak_bytes for x in ready if x.memory_peak_bytes is not None]
    return m.ArmSummary(
        arm=arm.id,
        method=arm.method,
        draft=arm.draft,
        k=arm.k,
        settings=arm.settings,
        command=first.argv if first else (),
        speculation_flags=first.speculation_flags if first else (),
        mix_speedup=_ratio(ratio, analysis.manifest.confidence)
        if ratio
        else m.Ratio(why_null="this is the baseline"),
        decision=decided.decision if decided else "INCONCLUSIVE",
        reasons=decided.reasons if decided else ("the baseline is what the others are compared with",),
        startup_s=tuple(x.startup_s for x in ready if x.startup_s is not None),
        kv_capacity_tokens=kv,
        max_concurrency=kv / length if kv and length else None,
        memory_peak_bytes=max(memory) if memory else None,
        launches=len(launches),
        failed_launches=len(launches) - len(ready),
    )


def _recommended(analysis: RunAnalysis, verdict: Verdict) -> m.Recommended | None:
    if verdict.choice is None:
        return None
    launches = analysis.launches_of(verdict.choice.arm)
    return m.Recommended(
        arm=verdict.choice.arm,
        flags=launches[0].speculation_flags if launches else (),
        loads=verdict.choice.concurrencies,
    )


def _difference(d: Difference) -> m.Note:
    action = {
        "side effect": "Nothing to do: part of what speculation costs, and inside the measured speed-up.",
        "asked for": "Move it to engine.args if the baseline should have it too.",
        "unexplained": "Set it explicitly in engine.args for all arms and run again.",
    }[d.kind]
    return m.Note(
        code=d.kind.replace(" ", "_"),
        message=f"{d.arm}: {d.setting} is {d.value!r}, in the baseline {d.baseline!r} ({d.why})",
        action=action,
    )


def _failures(analysis: RunAnalysis) -> tuple[m.FailureNote, ...]:
    notes = [
        m.FailureNote(
            where=f"launch {launch.id}",
            kind=launch.failure.kind,
            summary=launch.failure.summary,
            mend=launch.failure.mend,
            log_lines=launch.failure.log_lines,
            file=f"launches/{launch.id}/engine.log",
        )
        for launch in analysis.launches
        if launch.failure is not None
    ]
    for x in analysis.at.values():
        for cell in x.cells:
            failure = cell.record.failure
            if failure is not None and cell.record.status == "failed":
                notes.append(
                    m.FailureNote(
                        where=f"{x.arm.id} at {x.load.id}, round {cell.record.round}",
                        kind=failure.kind,
                        summary=failure.summary,
                        mend=failure.mend,
                        log_lines=(),
                        file=f"cells/{cell.record.id}/cell.json",
                    )
                )
    return tuple(notes)


def _warnings(analysis: RunAnalysis, events: list[dict[str, object]]) -> tuple[m.Note, ...]:
    notes: list[m.Note] = []
    if not analysis.complete:
        notes.append(
            m.Note(
                code="incomplete",
                message="Some planned cells were not measured.",
                action="Run the same command with --resume.",
            )
        )
    for x in analysis.at.values():
        for cell in x.cells:
            where = f"{x.arm.id} at {x.load.id}, round {cell.record.round}"
            notes += [
                m.Note(code="invalid_cell", message=f"{where}: {text}", action="It is left out.")
                for text in cell.invalid
            ]
            notes += [m.Note(code="cell", message=f"{where}: {text}", action="") for text in cell.warnings]
        notes += _acceptance_health(x)
    facts: dict[str, list[str]] = {}
    for launch in analysis.launches:
        for fact in launch.facts:
            arms = facts.setdefault(fact, [])
            if launch.arm not in arms:
                arms.append(launch.arm)
    for fact, arms in facts.items():
        everywhere = len(arms) == len(analysis.manifest.arms)
        notes.append(
            m.Note(
                code="engine", message=f"{'all arms' if everywhere else ', '.join(arms)}: {fact}", action=""
            )
        )
    notes += [
        m.Note(code=str(e.get("code", "sweep")), message=str(e["message"]), action=str(e.get("action", "")))
        for e in events
        if e.get("event") == "warning" and "message" in e
    ]
    if any(load.repeats for load in analysis.manifest.loads):
        notes.append(
            m.Note(
                code="repeated_prompts",
                message="The workload has fewer prompts than a cell needs, so prompts repeat.",
                action="Give a larger source or fewer requests per slot.",
            )
        )
    return tuple(notes)


def _acceptance_health(x: ArmLoad) -> list[m.Note]:
    if x.arm.method is None:
        return []
    f = figures(pool([c.window_counters for c in x.valid if c.window_counters is not None]))
    if f.rate is not None and f.rate < 0.5:
        first = f.per_position[0] if f.per_position else None
        detail = f"; its first draft token is accepted {first:.0%} of the time" if first is not None else ""
        return [
            m.Note(
                code="low_acceptance",
                message=f"{x.arm.id} at {x.load.id}: {f.rate:.0%} of drafted tokens are accepted{detail}.",
                action="Lower K, or use a draft that is closer to the target on this traffic.",
            )
        ]
    return []
