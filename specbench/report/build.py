"""From a run directory to a `Result`. Pure: the same directory gives the same result next year."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from specbench.analysis.acceptance import FROM_REQUESTS, acceptance, is_ngram, pool
from specbench.analysis.break_even import break_even
from specbench.analysis.compare import PairedRatio, paired
from specbench.analysis.engines import EngineLoad, engines_at_loads
from specbench.analysis.matched import matched_parts
from specbench.analysis.open_load import BINS, load_bins
from specbench.analysis.run import ArmLoad, RunAnalysis, analyse
from specbench.analysis.tails import METRICS
from specbench.parity.run import judge_run
from specbench.report import model as m
from specbench.report.machine import headroom, machine_at, unlike_machines
from specbench.report.policy import open_check_notes, open_check_result, policy, policy_notes, traffic_notes
from specbench.verdict.guards import ALPHA as GUARD_ALPHA
from specbench.verdict.registered import rule_changes
from specbench.verdict.rule import Verdict, judge

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from specbench.analysis.acceptance import AcceptanceFigures
    from specbench.analysis.cell import Cell
    from specbench.analysis.differences import Difference
    from specbench.observe.counters import EngineCounters
    from specbench.runs.records import ArmRecord, LaunchRecord
    from specbench.runs.rundir import RunDir

HISTOGRAM_BINS: Final = 24
MIN_FOR_P99: Final = 1000
MIN_FOR_P95: Final = 200
NO_ACCEPTANCE_LENGTH: Final = 1.02
"""Below this a model that drafts is not a bad draft but a broken one."""


def build(run: RunDir) -> m.Result:
    """Analyse, judge and collect.

    Raises:
        RunFileError: a file is missing or damaged.
    """
    # The tests are done again from the stored outputs: a stored decision could be of another version.
    analysis = dataclasses.replace(analyse(run), parity=judge_run(run))
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
        engine=", ".join(
            [f"{manifest.engine_kind} {manifest.engine_version}", *manifest.other_engines.values()]
        ),
        engines=tuple(_engine(analysis, x) for x in engines_at_loads(analysis)),
        parity=_parity(analysis),
        rounds=len(analysis.stages) or manifest.rounds,
        strategy=manifest.rule.strategy,
        looks=manifest.rule.looks,
        loads=tuple(x.id for x in manifest.loads),
        categories=manifest.categories,
        workload=manifest.workload,
        workload_digest=hashlib.sha256(
            "".join(x.workload_digest for x in manifest.loads).encode()
        ).hexdigest(),
        arms=tuple(_arm(analysis, verdict, arm) for arm in manifest.arms),
        results=tuple(_at(analysis, verdict, x) for x in analysis.at.values()),
        engine_differences=tuple(
            _difference(d, {a.id for a in manifest.arms if a.matched}) for d in analysis.differences
        ),
        warnings=_warnings(analysis, events, verdict.choice.arm if verdict.choice is not None else None),
        failures=_failures(analysis),
        machine=_machine(manifest.machine),
        headroom=headroom(analysis),
        policy=policy(analysis, verdict),
        open_check=open_check_result(analysis),
        matched=_matched(analysis),
        parity_task=_parity_task(analysis),
        config_yaml=manifest.config_text,
        files=tuple(sorted(str(p.relative_to(run.path)) for p in run.path.rglob("*") if _is_source(p))),
    )


def _parity(analysis: RunAnalysis) -> str:
    """One line over all arms."""
    if analysis.parity is None:
        return "not run"
    arms = "; ".join(f"{a.arm}: {a.decision} ({a.headline})" for a in analysis.parity.arms)
    return f"tier {analysis.parity.tier}: {arms}"


def _parity_task(analysis: RunAnalysis) -> tuple[m.ParityTask, ...]:
    """The task part of every arm that has one."""
    found = []
    for arm in analysis.parity.arms if analysis.parity is not None else ():
        task = arm.task
        if task is not None:
            d = task.difference
            found.append(
                m.ParityTask(
                    arm=arm.arm,
                    decision=task.decision,
                    prompts=task.prompts,
                    mean_arm=task.mean_arm,
                    mean_baseline=task.mean_baseline,
                    difference=None if d is None else d.value,
                    low=None if d is None else d.low,
                    high=None if d is None else d.high,
                    p=task.p,
                    margin=task.margin,
                    prompts_needed=task.prompts_needed,
                    words=task.words,
                )
            )
    return tuple(found)


def _is_source(path: Path) -> bool:
    return (
        path.parent.name == "parity"
        or path.parent.parts[-2:] == ("parity", "texts")
        or path.name
        in {
            "manifest.json",
            "journal.jsonl",
            "launch.json",
            "engine.log",
            "cell.json",
            "counters.json",
            "requests.parquet",
        }
    )


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
    adjusted = None if x.arm.method is None else analysis.adjusted(x.arm.id, x.load.id)
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
        reasons=decided.reasons if decided else (_not_judged(x.arm),),
        ttft_ms=_quantiles([t.ttft_s for t in times]),
        tpot_ms=_quantiles([t.tpot_s for t in times]),
        chunk_gap_ms=_quantiles([t.chunk_gap_s for t in times]),
        acceptance=_acceptance(windows, valid, x),
        categories=_categories(analysis, x),
        requests=sum(c.requests for c in x.cells),
        failed_requests=sum(c.failed_requests for c in x.cells),
        mean_output_tokens=sum(outputs) / len(outputs) if outputs else None,
        cached_prompt_share=cached / prompts if cached is not None and prompts else None,
        kv_usage_peak=pooled.kv_usage,
        preemptions=pooled.preemptions,
        kind=x.load.kind,
        title=x.load.title,
        latency_ms=_quantiles(
            [np.array(list(c.open_times.latency_s.values())) for c in valid if c.open_times is not None]
        ),
        offered_per_s=_mean([c.record.offered_per_s for c in x.cells]),
        delivered_per_s=_mean([c.record.delivered_per_s for c in x.cells]),
        load_bins=_load_bins(analysis, x),
        stage=x.stage,
        tails=_tails(analysis, verdict, x),
        speedup_adjusted=_ratio(adjusted.ratio, analysis.manifest.confidence)
        if adjusted is not None and adjusted.ratio is not None
        else None,
        adjustment=adjusted.note if adjusted is not None else None,
        machine=machine_at(analysis, x, _ratio),
    )


def _tails(analysis: RunAnalysis, verdict: Verdict, x: ArmLoad) -> tuple[m.TailRatio, ...]:
    found = []
    manifest = analysis.manifest
    confidence = 1 - 2 * GUARD_ALPHA if manifest.rule.strategy == "adaptive" else manifest.confidence
    for metric in METRICS:
        own = analysis.tails.get((metric.id, x.arm.id, x.load.id))
        if own is None:
            continue
        ratio = PairedRatio(tuple(own.per_round.values()), own.why_null)
        margin = manifest.rule.margins.get(metric.id) if x.stage != "explore" else None
        found.append(
            m.TailRatio(
                metric=metric.id,
                ratio=_ratio(ratio, confidence),
                margin=margin,
                state=verdict.guards.get((metric.id, x.arm.id, x.load.id)) if margin is not None else None,
            )
        )
    return tuple(found)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None


def _load_bins(analysis: RunAnalysis, x: ArmLoad) -> tuple[m.LoadBinCut, ...]:
    """Latency by how many requests ran in the baseline when each was sent, paired within rounds."""
    base = {
        c.record.round: c.open_times for c in analysis.at[x.arm.baseline, x.load.id].valid if c.open_times
    }
    cuts = []
    for name in BINS:
        own: dict[int, float] = {}
        theirs: dict[int, float] = {}
        bins = []
        for c in x.valid:
            reference = base.get(c.record.round)
            if c.open_times is None or reference is None:
                continue
            found = next((b for b in load_bins(reference) if b.name == name), None)
            if found is None:
                continue
            mine = found.mean_latency_s(c.open_times.latency_s)
            other = found.mean_latency_s(reference.latency_s)
            if mine and other:
                bins.append(found)
                own[c.record.round], theirs[c.record.round] = mine, other
        if bins:
            cuts.append(
                m.LoadBinCut(
                    name=name,
                    low=min(b.low for b in bins),
                    high=max(b.high for b in bins),
                    requests=sum(len(b.indices) for b in bins),
                    latency_ms=1000 * sum(own.values()) / len(own),
                    speedup=_ratio(paired(theirs, own, "no pair of rounds"), analysis.manifest.confidence),
                )
            )
    return tuple(cuts)


def _acceptance(windows: list[EngineCounters], valid: Sequence[Cell], x: ArmLoad) -> m.Acceptance:
    cuts = [t for c in valid if c.times is not None for t in c.times.by_category.values()]
    chunks = sum(t.decode_chunks for t in cuts)
    per_chunk = sum(t.decode_tokens for t in cuts) / chunks if chunks else None
    f = acceptance(windows, [c.request_acceptance for c in valid], x.arm, per_chunk)
    return m.Acceptance(
        length=f.length,
        rate=f.rate,
        break_even=_break_even(x, f),
        per_position=f.per_position,
        coverage=f.coverage,
        tokens_per_step=f.tokens_per_step,
        client_tokens_per_chunk=per_chunk,
        why_null=f.why_null,
        source=f.source,
        bias=f.bias,
    )


def _categories(analysis: RunAnalysis, x: ArmLoad) -> tuple[m.CategoryCut, ...]:
    base = analysis.at[x.arm.baseline, x.load.id]
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
        reasons=decided.reasons if decided else (_not_judged(arm),),
        startup_s=tuple(x.startup_s for x in ready if x.startup_s is not None),
        kv_capacity_tokens=first.kv_capacity_tokens if first else None,
        max_concurrency=_full_length(first),
        memory_peak_bytes=max(memory) if memory else None,
        launches=len(launches),
        failed_launches=len(launches) - len(ready),
        engine=arm.engine,
        stage=next((x.stage for x in analysis.at.values() if x.arm.id == arm.id), None),
        weights_bytes=first.weights_bytes if first else None,
        draft_weights_bytes=first.draft_weights_bytes if first else None,
        weights_load_s=_mean([x.weights_load_s for x in ready]),
        max_running_requests=first.max_running_requests if first else None,
        matched=arm.matched,
    )


def _not_judged(arm: ArmRecord) -> str:
    if arm.matched:
        return "the matched baseline only takes speed-ups apart: it is never judged"
    return "the baseline is what the others are compared with"


def _matched(analysis: RunAnalysis) -> tuple[m.MatchedParts, ...]:
    confidence = analysis.manifest.confidence
    return tuple(
        m.MatchedParts(
            arm=x.arm,
            load=x.load,
            side_effects=_ratio(x.side_effects, confidence),
            speculation=_ratio(x.speculation, confidence),
            unmatched=x.unmatched,
        )
        for x in matched_parts(analysis)
    )


def _full_length(launch: LaunchRecord | None) -> float | None:
    """Requests of the model's full length that fit: the engine's own figure, else tokens over the length."""
    if launch is None:
        return None
    if launch.max_concurrency is not None:
        return launch.max_concurrency
    tokens, length = launch.kv_capacity_tokens, launch.max_model_len
    return tokens / length if tokens and length else None


def _engine(analysis: RunAnalysis, x: EngineLoad) -> m.EngineAtLoad:
    confidence = analysis.manifest.confidence
    return m.EngineAtLoad(
        engine=x.engine or analysis.manifest.engine_kind,
        load=x.load.id,
        concurrency=x.load.concurrency,
        baseline=x.baseline.arm.id,
        baseline_tokens_per_s=_tokens_per_s(x.baseline),
        baseline_ratio=_ratio(x.baseline_ratio, confidence),
        fastest=x.fastest.arm.id,
        fastest_tokens_per_s=_tokens_per_s(x.fastest),
        fastest_ratio=_ratio(x.fastest_ratio, confidence),
    )


def _tokens_per_s(x: ArmLoad) -> float | None:
    return _mean([c.times.output_tokens_per_s for c in x.valid if c.times is not None])


def _recommended(analysis: RunAnalysis, verdict: Verdict) -> m.Recommended | None:
    if verdict.choice is None:
        return None
    launches = analysis.launches_of(verdict.choice.arm)
    return m.Recommended(
        arm=verdict.choice.arm,
        flags=launches[0].speculation_flags if launches else (),
        loads=verdict.choice.concurrencies,
        load_ids=verdict.choice.loads,
    )


def _difference(d: Difference, matched: set[str]) -> m.Note:
    action = {
        "side effect": "Nothing to do: part of what speculation costs, and inside the measured speed-up.",
        "asked for": "Move it to engine.args if the baseline should have it too.",
        "unexplained": "Set it explicitly in engine.args for all arms and run again.",
    }[d.kind]
    if d.arm in matched and d.kind == "asked for":
        action = "Nothing to do: this is what the matched baseline is for."
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


def _warnings(
    analysis: RunAnalysis, events: list[dict[str, object]], chosen: str | None
) -> tuple[m.Note, ...]:
    notes: list[m.Note] = []
    if not analysis.complete:
        notes.append(
            m.Note(
                code="incomplete",
                message="Some planned cells were not measured."
                if analysis.campaign_over is None
                else "The sweep ended before its rule told it to.",
                action="Run the same command with --resume.",
            )
        )
    notes += [
        m.Note(
            code="rule_changed",
            message=f"The rule in the config is not the one that was registered: {line}.",
            action="The registered rule was applied. A rule chosen after the data proves nothing: start a new run.",
        )
        for line in rule_changes(analysis.manifest, events)
    ]
    if analysis.manifest.source is not None:
        notes += [
            m.Note(code="workload", message=sentence, action="")
            for sentence in analysis.manifest.source.sentences()
        ]
    for x in analysis.at.values():
        for cell in x.cells:
            where = f"{x.arm.id} at {x.load.id}, round {cell.record.round}"
            notes += [
                m.Note(code="invalid_cell", message=f"{where}: {text}", action=_mend(text))
                for text in cell.invalid
            ]
            notes += [m.Note(code="cell", message=f"{where}: {text}", action="") for text in cell.warnings]
        notes += _acceptance_health(x)
    notes += _acceptance_sources(analysis)
    notes += _learning(analysis)
    notes += [
        m.Note(
            code="lossy",
            message=f"{arm.id} does not write the target's text: {arm.lossy}",
            action="Deploy it only where another text is wanted: its speed says nothing of a lossless arm.",
        )
        for arm in analysis.manifest.arms
        if arm.lossy
    ]
    notes += unlike_machines(analysis)
    notes += policy_notes(analysis, chosen)
    notes += traffic_notes(analysis.manifest)
    notes += open_check_notes(analysis)
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


_CLIENT_MEND: Final = (
    "It is left out. Stop other work on this machine (`specbench doctor` tells), give the client processors of "
    "its own (measure.client_cpus), and run again"
)


def _mend(why_invalid: str) -> str:
    return f"{_CLIENT_MEND}." if why_invalid.startswith("client-bound") else "It is left out."


def _learning(analysis: RunAnalysis) -> list[m.Note]:
    """What was done so that a drafter that remembers was not measured on prompts it had seen."""
    done = {
        "always": "each of its cells had a launch of its own",
        "until_reset": "it was made to forget before every cell, by the reset of the prefix cache",
    }
    notes = []
    for arm in analysis.manifest.arms:
        if arm.memory == "none":
            continue
        cells = [c for x in analysis.at.values() if x.arm.id == arm.id for c in x.cells]
        kept = arm.memory == "until_reset" and any(c.record.prefix_cache_reset is False for c in cells)
        notes.append(
            m.Note(
                code="learning_drafter",
                message=f"{arm.id} drafts from the requests it served; "
                + ("the engine would not reset its cache in every cell" if kept else done[arm.memory])
                + ". Within a cell it learns, as it does in production",
                action="Its acceptance is too high: see engine.log for why the reset failed." if kept else "",
            )
        )
    return notes


def _acceptance_sources(analysis: RunAnalysis) -> list[m.Note]:
    """Where acceptance does not come from counters, said once per arm."""
    found: dict[str, str] = {}
    for x in analysis.at.values():
        f = acceptance([], [c.request_acceptance for c in x.valid], x.arm)
        counted = any(c.window_counters and c.window_counters.drafts is not None for c in x.valid)
        if f.source == FROM_REQUESTS and not counted:
            found[x.arm.id] = f"{x.arm.id}: acceptance comes from {f.source}: {f.bias}."
    return [m.Note(code="acceptance_source", message=text, action="") for text in found.values()]


def _break_even(x: ArmLoad, f: AcceptanceFigures) -> float | None:
    """Of a closed loop: elsewhere the speed-up is one of latency, not of steps."""
    if x.arm.method is None or x.load.kind != "closed":
        return None
    return break_even(f.rate, f.tokens_per_step, x.speedup.value)


def _break_even_text(needed: float | None) -> str:
    if needed is None:
        return ""
    if needed > 1:
        return ". Not even a perfect draft would make up for the cost of this K here"
    return f". It breaks even at {needed:.0%}"


def _acceptance_health(x: ArmLoad) -> list[m.Note]:
    if x.arm.method is None:
        return []
    windows = [c.window_counters for c in x.valid if c.window_counters is not None]
    f = acceptance(windows, [c.request_acceptance for c in x.valid], x.arm)
    if f.length is not None and f.length < NO_ACCEPTANCE_LENGTH and not is_ngram(x.arm):
        return [
            m.Note(
                code="no_acceptance",
                message=f"{x.arm.id} at {x.load.id}: hardly any draft token is accepted "
                f"(acceptance length {f.length:.2f}): this looks like a draft that does not fit its target.",
                action="Check that the draft was made for this target and that all its weights were loaded.",
            )
        ]
    if is_ngram(x.arm) and f.source == FROM_REQUESTS:
        return []  # its rate says nothing
    if f.rate is not None and f.rate < 0.5:
        first = f.per_position[0] if f.per_position else None
        detail = f"; its first draft token is accepted {first:.0%} of the time" if first is not None else ""
        return [
            m.Note(
                code="low_acceptance",
                message=f"{x.arm.id} at {x.load.id}: {f.rate:.0%} of drafted tokens are accepted{detail}"
                f"{_break_even_text(_break_even(x, f))}.",
                action="Lower K, or use a draft that is closer to the target on this traffic.",
            )
        ]
    return []
