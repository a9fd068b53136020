"""What to deploy at which load, what production's traffic was read from, and the open-loop check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from specbench.config.grid import Arm
from specbench.engines.schedule import schedule_problem, schedule_settings, speculation_of
from specbench.engines.vllm_setting_problems import SCHEDULE
from specbench.report import model as m
from specbench.report import policy_model as p
from specbench.verdict.deploy import enable_ranges, suggestions
from specbench.verdict.open_check import checked, guarded
from specbench.verdict.policy import crossovers, schedules
from specbench.verdict.words import ratio_text

if TYPE_CHECKING:
    from specbench.analysis.run import RunAnalysis
    from specbench.runs.records import ArmRecord, Manifest
    from specbench.verdict.deploy import EnableRange, Suggestion
    from specbench.verdict.rule import Verdict

CONFIRM = "A suggestion, not yet measured as an arm of its own: `specbench sweep CONFIG --confirm-policy` measures it."


def policy(run: RunAnalysis, verdict: Verdict) -> p.Policy:
    """Enable ranges and K by load, with the words to deploy them."""
    return p.Policy(
        enable=tuple(_enable(run, x) for x in enable_ranges(run, verdict)),
        schedules=(
            *(_suggested(run, x) for x in suggestions(run, verdict)),
            *_measured(run, verdict),
        ),
    )


def _enable(run: RunAnalysis, x: EnableRange) -> p.EnableRange:
    arm = next(a for a in run.manifest.arms if a.id == x.arm)
    return p.EnableRange(
        arm=x.arm,
        engine=" ".join(run.manifest.engine_of(arm)),
        first=x.first,
        last=x.last,
        beyond=x.beyond,
        crossover=x.crossover.concurrency if x.crossover else None,
        crossover_low=x.crossover.low if x.crossover else None,
        crossover_high=x.crossover.high if x.crossover else None,
        flags=_flags(run, x.arm),
    )


def _flags(run: RunAnalysis, arm: str) -> tuple[str, ...]:
    return next((x.speculation_flags for x in run.launches_of(arm)), ())


def _suggested(run: RunAnalysis, x: Suggestion) -> p.KSchedule:
    kind, version = run.manifest.engine_of(x.arm)
    rows = [(s.first, s.last, s.k) for s in x.ranges]
    why = schedule_problem(kind, version, x.arm.method)
    if why is None:
        settings = schedule_settings(x.arm.settings, rows)
        arm = Arm(x.arm.id, x.arm.method, x.arm.draft, max(k for *_, k in rows), settings)
        flags = speculation_of(kind, version, arm)
    else:
        flags = ()
        why += ". Each K by itself is an arm above; a switch between them would be between servers"
    return p.KSchedule(
        arm=x.arm.id,
        method=x.arm.method or "",
        draft=x.arm.draft,
        engine=f"{kind} {version}",
        steps=tuple(p.KStep(first=a, last=b, k=k) for a, b, k in rows),
        status="suggested",
        flags=flags,
        why_no_flags=why,
        reasons=(CONFIRM,) if why is None else (),
    )


def _measured(run: RunAnalysis, verdict: Verdict) -> list[p.KSchedule]:
    """Arms with K by load that this run measured itself."""
    return [
        _as_measured(run, verdict, arm)
        for arm in run.manifest.arms
        if arm.method is not None and _rows(arm) and arm.id in verdict.arms
    ]


def _rows(arm: ArmRecord) -> list[tuple[int, int, int]]:
    rows = arm.settings.get(SCHEDULE)
    if not isinstance(rows, list) or not all(isinstance(x, list | tuple) and len(x) == 3 for x in rows):
        return []
    return [(int(a), int(b), int(k)) for a, b, k in rows]


def _as_measured(run: RunAnalysis, verdict: Verdict, arm: ArmRecord) -> p.KSchedule:
    record = run.manifest.confirms
    own = record if record is not None and record.arm == arm.id else None
    decided = verdict.arms[arm.id]
    status: Literal["recommended", "rejected", "open"] = "open"
    reasons = decided.reasons
    if decided.decision == "GO" and own is not None:
        status = "recommended"
    elif decided.decision == "NO-GO":
        status = "rejected"
    elif decided.decision == "GO":
        reasons = (*reasons, "not measured on both sides of each switch: `--confirm-policy` does that")
    return p.KSchedule(
        arm=arm.id,
        method=arm.method or "",
        draft=arm.draft,
        engine=" ".join(run.manifest.engine_of(arm)),
        steps=tuple(p.KStep(first=a, last=b, k=k) for a, b, k in _rows(arm)),
        status=status,
        flags=_flags(run, arm.id),
        reasons=reasons,
        confirms=own.run_id if own else None,
    )


def policy_notes(run: RunAnalysis, chosen: str | None = None) -> list[m.Note]:
    """Between the measured loads: up to where an arm pays, and K by load.

    Args:
        chosen: the arm to deploy; where others stop paying is of no use beside it.
    """
    notes = []
    for x in crossovers(run):
        if chosen not in {None, x.arm}:
            continue
        low = f"; switch it off above {x.low:.0f} to be sure" if x.low is not None else ""
        ends = ["?" if end is None else f"{end:.0f}" for end in (x.low, x.high)]
        notes.append(
            m.Note(
                code="crossover",
                message=f"{x.arm} falls below {ratio_text(run.manifest.min_speedup)} at about "
                f"{x.concurrency:.0f} in flight [{', '.join(ends)}]{low}.",
                action="",
            )
        )
    for s in schedules(run):
        steps = ", ".join(f"{x.k or 'none'} up to {x.last}" for x in s.ranges)
        notes.append(
            m.Note(
                code="k_by_load",
                message=f"{s.method}: the best K changes with the load: {steps} in flight.",
                action=f"K = 0 is not the baseline, and switching costs. {CONFIRM}",
            )
        )
    return notes


def traffic_notes(manifest: Manifest) -> list[m.Note]:
    """Where the traffic weights come from, and what of production lies outside of the measured loads."""
    found = manifest.production
    if found is None:
        return []
    span = f"{found.seconds / 3600:.1f} h" if found.seconds is not None else "pages without times"
    servers = f"{found.servers} server{'' if found.servers == 1 else 's'}"
    notes = [
        m.Note(
            code="traffic_from",
            message=f"The traffic weights are read from {found.file}: {found.samples:,} samples of "
            f"{', '.join(found.metrics)}, {servers}, {span}; idle {found.idle:.0%} of the time, which is left out.",
            action="",
        )
    ]
    outside = [(found.below, "below"), (found.above, "above")]
    parts = [f"{share:.1%} of its busy time lies {side}" for share, side in outside if share > 0]
    if parts:
        ends = sorted(x.concurrency for x in manifest.loads if x.kind == "closed")
        notes.append(
            m.Note(
                code="traffic_outside",
                message=f"{' and '.join(parts)} the measured concurrencies ({ends[0]} to {ends[-1]}); it counts as "
                "if it were at the ends, which was not measured.",
                action="Add concurrencies to loads.closed that cover it.",
            )
        )
    return notes


def open_check_notes(run: RunAnalysis) -> list[m.Note]:
    """Cells of the open-loop check that failed or cannot be used, and prompts that repeat in it."""
    check, record = run.open_check, run.manifest.open_check
    if check is None or record is None:
        return []
    notes = []
    for rate in check.rates:
        for cell in (*rate.baseline, *rate.arm):
            where = f"{cell.record.arm} at {rate.id}, round {cell.record.round}"
            failure = cell.record.failure
            lost = [failure.summary] if failure is not None else cell.invalid
            notes += [
                m.Note(code="invalid_cell", message=f"{where}: {text}", action="It is left out.")
                for text in lost
            ]
            notes += [m.Note(code="cell", message=f"{where}: {text}", action="") for text in cell.warnings]
    if any(x.repeats for x in record.loads):
        text = "The open-loop check sends more requests than there are prompts, so prompts repeat."
        notes.append(m.Note(code="repeated_prompts", message=text, action="Give a larger source."))
    return notes


def open_check_result(run: RunAnalysis) -> p.OpenCheckResult | None:
    """The open-loop check; null for a run without one."""
    check = run.open_check
    if check is None:
        return None
    outcome, guards = checked(run), guarded(run)
    rates = []
    for rate in check.rates:
        own = {c.record.round for c in rate.arm if c.valid}
        rates.append(
            p.OpenRate(
                load=rate.id,
                share=rate.share,
                rate_per_s=rate.rate_per_s,
                pairs=len(own & {c.record.round for c in rate.baseline if c.valid}),
                guards=tuple(
                    p.OpenGuard(metric=g.metric, state=g.state, text=g.text, per_round=g.per_round)
                    for g in guards
                    if g.rate == rate.id
                ),
            )
        )
    return p.OpenCheckResult(
        state=outcome.state,
        arm=check.arm,
        reference=check.load,
        requests_per_s=check.requests_per_s,
        rates=tuple(rates),
        reasons=outcome.reasons,
        ended=check.why if check.over else None,
    )
