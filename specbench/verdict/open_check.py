"""Do the guardrails hold when requests arrive on their own? Judged for the recommended arm alone.

In a closed loop a stall delays only the requests in flight; in an open one the queue grows behind it. The
figures are those of `verdict.guards`: a percentile per launch, paired with the baseline's of the round, t over
the pairs, two looks. The absolute limits are tested on the percentile itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from specbench.analysis.cell import MAX_FAILED_SHARE
from specbench.analysis.tails import METRICS, TailMetric, percentile
from specbench.verdict.guards import guard_state, interval, logs
from specbench.verdict.words import interval_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from specbench.analysis.cell import Cell
    from specbench.analysis.open_check import CheckedRate
    from specbench.analysis.run import RunAnalysis
    from specbench.verdict.guards import GuardState

TPOT_P95: Final = TailMetric("tpot_p95", "TPOT p95", 0.95, 200)


@dataclass(frozen=True, slots=True)
class Guarded:
    """One guardrail at one rate.

    Attributes:
        rate: id of the check's load.
        metric: ``ttft_p95``, ``tpot_p99``, ``chunk_gap_p99``, ``errors``, or ``ttft_p95_limit``, ``tpot_p95_limit``.
        state: null when it cannot be estimated; such a guardrail decides nothing.
        text: the figure and what is allowed, or why there is none.
        per_round: ratios to the baseline, or to the limit.
    """

    rate: str
    metric: str
    state: GuardState | None
    text: str
    per_round: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Checked:
    """The outcome; ``none`` when no arm was recommended, so that there was nothing to check."""

    state: Literal["pass", "fail", "open", "none"]
    reasons: tuple[str, ...]


def guarded(run: RunAnalysis) -> tuple[Guarded, ...]:
    """Every guardrail at every rate of the check; empty without one."""
    check = run.open_check
    if check is None or check.arm is None:
        return ()
    return tuple(g for rate in check.rates for g in _at(run, rate))


def settled(run: RunAnalysis) -> bool:
    """Whether more pairs of launches could change nothing."""
    found = guarded(run)
    return bool(found) and not any(g.state == "open" for g in found)


def checked(run: RunAnalysis) -> Checked:
    """The outcome of a run's check; a pass when the run has none."""
    check = run.open_check
    if check is None:
        return Checked("pass", ())
    if check.arm is None:
        if check.over:
            return Checked("none", ())
        return Checked("open", ("the open-loop check has not run yet: --resume runs it",))
    found = guarded(run)
    failed = tuple(g.text for g in found if g.state == "fail")
    if failed:
        return Checked("fail", failed)
    left = tuple(g.text for g in found if g.state == "open")
    if not check.over:
        return Checked("open", ("the open-loop check is not finished: --resume goes on", *left))
    return Checked("open" if left else "pass", left)


def _at(run: RunAnalysis, rate: CheckedRate) -> list[Guarded]:
    assert run.manifest.open_check is not None
    record, limits = run.manifest.open_check, _limits(run)
    found = [_errors(rate)]
    where = _where(rate)
    no_pair = {c.record.round for c in rate.arm if c.valid}.isdisjoint(
        c.record.round for c in rate.baseline if c.valid
    )
    for metric in METRICS:
        margin = record.margins.get(metric.id)
        if margin is None:
            continue
        tail = rate.tails[metric.id]
        if not tail.per_round:
            state: GuardState | None = "open" if no_pair else None
            found.append(Guarded(rate.id, metric.id, state, f"{metric.title} {where} is {tail.why_null}"))
            continue
        text = f"{metric.title} {where} is {_figure(tail.per_round)} times the baseline's"
        found.append(
            _judged(
                run, rate, metric.id, tail.per_round, margin, text, f"at most {1 + margin:.2f} is allowed"
            )
        )
    for metric, limit_ms in limits:
        per_round = _over_limit(rate.arm, metric, limit_ms)
        name = f"{metric.id}_limit"
        if not per_round:
            missing = f"{metric.title} {where} is not estimable: {metric.minimum} values per cell are needed"
            found.append(Guarded(rate.id, name, "open" if no_pair else None, missing))
            continue
        ms = {r: x * limit_ms for r, x in per_round.items()}
        text = f"{metric.title} {where} is {_figure(ms, ' ms')}"
        found.append(_judged(run, rate, name, per_round, 0.0, text, f"the limit is {limit_ms:.0f} ms"))
    return found


def _judged(
    run: RunAnalysis, rate: CheckedRate, name: str, per_round: Mapping[int, float], margin: float, text: str,
    allowed: str,
) -> Guarded:  # fmt: skip
    assert run.manifest.open_check is not None
    assert run.open_check is not None
    record, ratios = run.manifest.open_check, logs(per_round)
    last = len(ratios) if run.open_check.over else record.rounds
    state = guard_state(ratios, margin, (record.first_look, last))
    return Guarded(rate.id, name, state, f"{text}; {allowed}", tuple(per_round[r] for r in sorted(per_round)))


def _errors(rate: CheckedRate) -> Guarded:
    own, base = _failed_share(rate.arm), _failed_share(rate.baseline)
    if own is None or base is None:
        return Guarded(rate.id, "errors", "open", f"nothing was sent {_where(rate)}")
    text = f"{own:.2%} of the requests failed {_where(rate)}, {base:.2%} in the baseline"
    worse = own > MAX_FAILED_SHARE and own > base
    return Guarded(rate.id, "errors", "fail" if worse else "pass", text)


def _failed_share(cells: Sequence[Cell]) -> float | None:
    sent = sum(c.requests for c in cells)
    return sum(c.failed_requests for c in cells) / sent if sent else None


def _limits(run: RunAnalysis) -> list[tuple[TailMetric, float]]:
    ttft = next(metric for metric in METRICS if metric.id == "ttft_p95")
    given = ((ttft, run.manifest.ttft_p95_limit_ms), (TPOT_P95, run.manifest.tpot_p95_limit_ms))
    return [(metric, limit) for metric, limit in given if limit is not None]


def _over_limit(cells: Sequence[Cell], metric: TailMetric, limit_ms: float) -> dict[int, float]:
    return {c.record.round: 1000 * v / limit_ms for c in cells if (v := percentile(c, metric))}


def _where(rate: CheckedRate) -> str:
    return f"at {rate.rate_per_s:.3g} requests/s ({rate.share:.0%} of the baseline's)"


def _figure(per_round: Mapping[int, float], unit: str = "") -> str:
    ratios = logs(per_round)
    value = math.exp(math.fsum(ratios) / len(ratios))
    bounds = interval(ratios)
    shown = f"{value:.0f}{unit}" if unit else f"{value:.2f}"
    if bounds is None:
        return shown
    if unit:
        return f"{shown} [{bounds[0]:.0f}, {bounds[1]:.0f}]"
    return f"{shown} {interval_text(bounds)}"
