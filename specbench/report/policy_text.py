"""What every format says about deploying by load and about further checks: sentences, and words to copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from specbench.report import formatting as fmt

if TYPE_CHECKING:
    from specbench.report.model import Result
    from specbench.report.policy_model import EnableRange, KSchedule

TITLE: Final = "By load"
OPEN_TITLE: Final = "Open-loop check"
MATCHED_TITLE: Final = "Matched baseline"
TASK_TITLE: Final = "Task level"

STATUS: Final = {
    "suggested": "suggestion, not yet measured",
    "recommended": "recommended: measured as an arm of its own, also beside every switch",
    "rejected": "measured and rejected",
    "open": "measured, not settled",
}
_STATE: Final = {"pass": "kept", "fail": "not kept", "open": "open", None: "not estimable"}


@dataclass(frozen=True, slots=True)
class Piece:
    """A sentence, the words that deploy it (empty for none), and what else is to say."""

    text: str
    flags: tuple[str, ...] = ()
    more: tuple[str, ...] = ()


def policy_pieces(result: Result) -> list[Piece]:
    """Enable ranges first, then K by load; none where no arm is GO at the lowest load and K does not vary."""
    if result.policy is None:
        return []
    return [
        *(_enable(x, result) for x in result.policy.enable),
        *(_schedule(x) for x in result.policy.schedules),
    ]


def _enable(x: EnableRange, result: Result) -> Piece:
    arm = fmt.one_line(x.arm)
    if x.beyond is None:
        return Piece(
            f"{arm} on {fmt.one_line(x.engine)}: GO at every measured load, {x.first} to {x.last}.", x.flags
        )
    text = f"{arm} on {fmt.one_line(x.engine)}: GO from {x.first} to {x.last} in flight, no GO at {x.beyond}"
    more = []
    if x.crossover is not None:
        ends = ", ".join("?" if e is None else f"{e:.0f}" for e in (x.crossover_low, x.crossover_high))
        sure = f": switch it off above {x.crossover_low:.0f}" if x.crossover_low is not None else ""
        more.append(
            f"falls to {fmt.times(result.min_speedup)} at about {x.crossover:.0f} in flight [{ends}]{sure}"
        )
    return Piece(f"{text}.", x.flags, tuple(more))


def _schedule(x: KSchedule) -> Piece:
    steps = ", ".join(f"K = {s.k} from {s.first} to {s.last}" for s in x.steps)
    name = " ".join(fmt.one_line(part) for part in (x.method, x.draft or "") if part)
    text = f"{name} on {fmt.one_line(x.engine)}, K by load ({STATUS[x.status]}): {steps} in flight."
    more = [fmt.one_line(r) for r in x.reasons]
    if x.why_no_flags:
        more.insert(0, fmt.one_line(x.why_no_flags))
    if x.confirms:
        more.append(f"suggested by run {fmt.one_line(x.confirms)}")
    return Piece(text, x.flags, tuple(more))


def matched_lines(result: Result) -> list[str]:
    """Speed-ups taken apart, one sentence per arm and load; empty without a matched baseline."""
    lines = []
    for x in result.matched:
        where = f"{fmt.one_line(x.arm)} at {fmt.one_line(x.load)}"
        if not fmt.known(x.speculation.value):
            lines.append(f"{where}: {fmt.one_line(x.speculation.why_null or 'not measured')}.")
            continue
        lines.append(
            f"{where}: side effects {fmt.speedup(x.side_effects)}, speculation beside them "
            f"{fmt.speedup(x.speculation)}; together they are the speedup."
        )
    lines += dict.fromkeys(
        f"{fmt.one_line(x.arm)} is not matched in {fmt.one_line(text)}; its two parts mix there."
        for x in result.matched
        for text in x.unmatched
    )
    return lines


def task_lines(result: Result) -> list[str]:
    """Mean task scores against the baseline's, one sentence per arm; empty without a scorer."""
    return [
        f"{fmt.one_line(x.arm)}: {fmt.one_line(x.words).removeprefix('task: ')}." for x in result.parity_task
    ]


def open_check_lines(result: Result) -> list[str]:
    """The check in sentences; empty for a run without one."""
    check = result.open_check
    if check is None:
        return []
    if check.arm is None:
        return [f"{fmt.one_line(check.ended or 'not run yet')}."]
    lines = [
        f"{fmt.one_line(check.arm)}: {check.state}. Poisson arrivals, latency from the intended send; the baseline "
        f"finishes {fmt.number(check.requests_per_s)} requests/s at {fmt.one_line(check.reference or '')}."
    ]
    for rate in check.rates:
        pairs = f"{rate.pairs} pair{'' if rate.pairs == 1 else 's'}"
        lines += [f"{fmt.one_line(g.text)}: {_STATE[g.state]} ({pairs})" for g in rate.guards]
    return lines
