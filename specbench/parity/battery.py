"""All tests of one speculative arm, and what they add up to: PASS, FAIL or INCONCLUSIVE.

FAIL when a test rejects at 0.001 after Holm's correction over the arm's tests. PASS only by equivalence: the
interval of every effect lies inside its margin and the rate of broken tokens is bounded. Not being able to
find a difference is not enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

from specbench.parity import greedy, lengths, sampling
from specbench.parity.counting import Counted
from specbench.parity.data import ScoredSequence, Tokens
from specbench.parity.eprocess import e_process
from specbench.parity.scores import BASIC, NAMES, Scores, Sums, score
from specbench.runs.parity import ArmParity, Interval, LoadParity, TestResult

Tier = Literal["smoke", "gate", "nightly"]

FAIL_BELOW: Final = 0.001
ESCALATE_BELOW: Final = 0.05
MAX_D_BETA: Final = 0.03
MAX_D_TOP1: Final = 0.01
MAX_BUG_RATE: Final[dict[str, float]] = {"smoke": 3e-4, "gate": 1e-4, "nightly": 1e-5}
"""Largest 95% bound on the rate of broken tokens that a PASS may leave open: about 5 over the tier's size."""


@dataclass(frozen=True)
class Outputs:
    """Scored outputs of one arm at one load, or all of the baseline's.

    Attributes:
        greedy, sampled: null when that kind was not collected.
        temperature, top_p: of the sampled ones.
        greedy_sequences: for the first differences of texts.
        as_served: outputs sampled as the workload is, where that is another law: a second battery.
    """

    load: str
    greedy: Tokens | None
    sampled: Tokens | None
    temperature: float = 1.0
    top_p: float = 1.0
    greedy_sequences: Sequence[ScoredSequence] = ()
    as_served: Outputs | None = None

    @classmethod
    def of(cls, load: str, sequences: Iterable[ScoredSequence]) -> Outputs:
        """Sort outputs by how they were decoded.

        Raises:
            ParityDataError: no scored tokens, or scores that do not fit together.
        """
        rows = list(sequences)
        greedily = [s for s in rows if s.greedy]
        by_law: dict[tuple[float, float], list[ScoredSequence]] = {}
        for s in rows:
            if not s.greedy:
                by_law.setdefault((s.temperature, s.top_p), []).append(s)
        # The exact law comes first: it is the main battery where there are two.
        laws = sorted(by_law, key=lambda law: law != EXACT_LAW)
        sampled = by_law[laws[0]] if laws else []
        return cls(
            load=load,
            greedy=Tokens.of(greedily) if greedily else None,
            sampled=Tokens.of(sampled) if sampled else None,
            temperature=laws[0][0] if laws else 1.0,
            top_p=laws[0][1] if laws else 1.0,
            greedy_sequences=tuple(greedily),
            as_served=None
            if len(laws) < 2
            else cls(f"{load} as served", None, Tokens.of(by_law[laws[1]]), *laws[1]),
        )

    @cached_property
    def scores(self) -> Scores:
        """Scores of the sampled tokens."""
        assert self.sampled is not None
        return score(self.sampled)

    @property
    def exact(self) -> bool:
        """Whether the scorer knows the law that was sampled from, so that one sample is enough."""
        return (self.temperature, self.top_p) == EXACT_LAW


EXACT_LAW: Final = (1.0, 1.0)
"""Temperature and top_p at which the scorer's probabilities are those that were sampled from."""


@dataclass(slots=True)
class _Findings:
    """What one load gave."""

    tests: list[TestResult]
    effects: sampling.Effects | None = None
    counts: tuple[Counted, ...] = ()
    divergences: tuple[greedy.Divergence, ...] = ()
    missing: tuple[str, ...] = ()


def judge_arm(
    arm: str, tier: Tier, loads: Sequence[Outputs], baseline: Outputs, lossy: Sequence[str] = ()
) -> ArmParity:
    """Test an arm at all its loads against the baseline's own outputs (both launches, A and A').

    Args:
        lossy: settings of the arm that change outputs by design (`lossy_settings`).
    """
    found = [_at_load(outputs, baseline, tier) for outputs in loads]
    for outputs in loads:
        served, base = outputs.as_served, baseline.as_served
        if served is None or base is None:
            continue
        second = _Findings([])
        assert served.sampled is not None
        assert base.sampled is not None
        _sampled(served, served.sampled, base, base.sampled, tier, second)
        # Whether it is equal within bounds is for the exact law to say, where the test is sharpest.
        second.effects = None
        loads, found = [*loads, served], [*found, second]
    tests = holm([t for f in found for t in f.tests])
    upper = max((c.excess_upper95 for f in found for c in f.counts), default=None)
    at = tuple(
        _load_result(outputs, f, tuple(t for t in tests if t.load == outputs.load))
        for outputs, f in zip(loads, found, strict=True)
    )
    failed = [t for t in tests if t.p_holm < FAIL_BELOW]
    doubtful = [t for t in tests if FAIL_BELOW <= t.p_holm < ESCALATE_BELOW]
    open_ = [f"{x.load}: {text}" for x in at for text in x.open_questions]
    if upper is not None and upper > MAX_BUG_RATE[tier]:
        open_.append(
            f"the rate of broken tokens is only known to be below {upper:.1e}; more tokens are needed"
        )
    if not loads:
        open_.append("no output of this arm was scored")
    decision: Literal["PASS", "FAIL", "INCONCLUSIVE"]
    if lossy:
        decision, reasons = "FAIL", [f"lossy by configuration: {text}" for text in lossy]
        reasons += [words_of(t) for t in failed]
    elif failed:
        decision, reasons = "FAIL", [words_of(t) for t in failed]
    elif doubtful:
        decision = "INCONCLUSIVE"
        reasons = [f"{words_of(t)}: doubtful, test again with new prompts" for t in doubtful] + open_
    elif open_:
        decision, reasons = "INCONCLUSIVE", open_
    else:
        decision, reasons = "PASS", []
    return ArmParity(
        arm=arm,
        tier=tier,
        decision=decision,
        headline=_headline(decision, reasons, at, upper),
        reasons=tuple(reasons),
        lossy=tuple(lossy),
        escalate=bool(doubtful) and decision == "INCONCLUSIVE",
        tokens=sum(x.tokens for x in at),
        bug_rate_upper95=upper,
        loads=at,
    )


def _at_load(arm: Outputs, baseline: Outputs, tier: Tier) -> _Findings:
    found = _Findings([])
    missing = []
    if arm.greedy is not None and baseline.greedy is not None:
        _greedy(arm, arm.greedy, baseline.greedy, found, baseline.greedy_sequences)
    else:
        missing.append("greedy outputs were not scored")
    if arm.sampled is not None and baseline.sampled is not None:
        _sampled(arm, arm.sampled, baseline, baseline.sampled, tier, found)
    else:
        missing.append("sampled outputs were not scored")
    found.missing = tuple(missing)
    return found


def _greedy(
    arm: Outputs, own: Tokens, base: Tokens, found: _Findings, texts: Sequence[ScoredSequence]
) -> None:
    tests = greedy.greedy_tests(own, base)
    found.tests += [
        _test(
            arm,
            "greedy, hard",
            tests.p_hard,
            f"{tests.hard.arm} of {tests.tokens} tokens lie more than {tests.hard_nat:.2f} nat below the "
            f"best one (worst {tests.worst_nat:.2f}, baseline's worst {tests.baseline_worst_nat:.2f})",
        ),
        _test(
            arm,
            "greedy, soft",
            tests.p_soft,
            f"{tests.soft.arm} of {tests.tokens} tokens lie more than {tests.soft_nat:.2f} nat below the "
            f"best one; of the baseline {tests.soft.baseline} of {tests.soft.baseline_of}",
        ),
    ]
    _ends(arm, "greedy", own, base, found)
    found.counts += (tests.hard,)
    found.divergences = tuple(
        greedy.first_divergences(arm.greedy_sequences, texts, tests.soft_nat, greedy.logit_ulp(base))
    )


def _sampled(
    arm: Outputs, own: Tokens, baseline: Outputs, base: Tokens, tier: Tier, found: _Findings
) -> None:
    scores, against = arm.scores, baseline.scores
    has_draft = scores.has_draft and against.has_draft
    if arm.exact:
        _one_sample(arm, scores, own, against.total, has_draft, found)
        if tier == "nightly":
            evidence = e_process(own)
            found.tests.append(
                _test(arm, "sampled, e-process", evidence.p, f"largest log evidence {evidence.log_max:.1f}")
            )
    else:
        for name, directions in (("S3", BASIC), ("S5", len(NAMES))):
            if directions == BASIC or has_draft:
                result = sampling.two_sample(scores, against, directions)
                found.tests.append(
                    _test(
                        arm,
                        f"sampled, {name}, two samples",
                        result.p,
                        f"per-output scores differ from the baseline's (chi2 {result.statistic:.1f}, "
                        f"{result.df} directions)",
                    )
                )
        outside = sampling.count_outside_nucleus(own, base, arm.temperature, arm.top_p)
        if arm.top_p < 1.0:
            found.tests.append(
                _test(
                    arm,
                    "sampled, nucleus",
                    outside.p_more,
                    f"{outside.arm} of {outside.arm_of} tokens lie outside top_p; of the baseline "
                    f"{outside.baseline} of {outside.baseline_of}",
                )
            )
    impossible = sampling.count_impossible(own, base)
    found.tests.append(
        _test(
            arm,
            "sampled, impossible tokens",
            impossible.p_more,
            f"{impossible.arm} of {impossible.arm_of} tokens have a chance below 1e-6; of the baseline "
            f"{impossible.baseline} of {impossible.baseline_of}",
        )
    )
    _ends(arm, "sampled", own, base, found)
    found.counts += (impossible,)
    found.effects = sampling.effects(scores, against)


def _one_sample(
    arm: Outputs, scores: Scores, own: Tokens, base: Sums, has_draft: bool, found: _Findings
) -> None:
    total = scores.total
    warmth = sampling.guarded(total.first(1), base.first(1))
    basic = sampling.guarded(total.first(BASIC), base.first(BASIC))
    found.tests += [
        _test(
            arm,
            "sampled, temperature",
            warmth.p,
            f"scores along {NAMES[0]} are off (chi2 {warmth.one.statistic:.1f}, 1 direction)",
        ),
        _test(
            arm,
            "sampled, S3",
            basic.p,
            f"scores along {', '.join(NAMES[:BASIC])} are off (chi2 {basic.one.statistic:.1f}, "
            f"{basic.one.df} directions)",
        ),
    ]
    positions = sampling.by_position(scores, own, base)
    if positions.tests:
        found.tests.append(
            _test(
                arm,
                "sampled, S3 by position",
                positions.p,
                f"scores are off at {positions.worst}",
            )
        )
    if has_draft:
        whole = sampling.guarded(total, base)
        found.tests.append(
            _test(
                arm,
                "sampled, S5",
                whole.p,
                f"scores along the draft's own direction are off (chi2 {whole.one.statistic:.1f}, "
                f"{whole.one.df} directions)",
            )
        )


def _ends(arm: Outputs, kind: str, own: Tokens, base: Tokens, found: _Findings) -> None:
    mine, theirs = lengths.lengths(own).mean(), lengths.lengths(base).mean()
    looped = lengths.count_loops(own, base)
    found.tests += [
        _test(
            arm,
            f"{kind}, lengths",
            lengths.p_length(own, base),
            f"outputs have {mine:.1f} tokens, the baseline's {theirs:.1f}",
        ),
        _test(
            arm,
            f"{kind}, loops",
            looped.p_more,
            f"{looped.arm} of {looped.arm_of} outputs end in a loop; of the baseline {looped.baseline} of "
            f"{looped.baseline_of}",
        ),
    ]


def _test(arm: Outputs, name: str, p: float, words: str) -> TestResult:
    return TestResult(load=arm.load, name=name, p=p, p_holm=p, words=words)


def holm(tests: Sequence[TestResult]) -> list[TestResult]:
    """Holm's step-down correction; the order of the tests is kept."""
    order = sorted(range(len(tests)), key=lambda i: tests[i].p)
    adjusted, running = [0.0] * len(tests), 0.0
    for rank, i in enumerate(order):
        running = max(running, min(1.0, tests[i].p * (len(tests) - rank)))
        adjusted[i] = running
    return [
        TestResult(load=t.load, name=t.name, p=t.p, p_holm=adjusted[i], words=t.words)
        for i, t in enumerate(tests)
    ]


def _load_result(outputs: Outputs, f: _Findings, tests: tuple[TestResult, ...]) -> LoadParity:
    open_ = list(f.missing)
    e = f.effects
    if e is not None and not e.d_beta.within(MAX_D_BETA):
        open_.append(f"the temperature is not known to within {MAX_D_BETA:.0%} ({_tilt_text(e.d_beta)})")
    if e is not None and not e.d_top1.within(MAX_D_TOP1):
        open_.append(
            f"the share of likeliest tokens is not known to within {MAX_D_TOP1:.0%} "
            f"({e.d_top1.low:+.2%} to {e.d_top1.high:+.2%})"
        )
    return LoadParity(
        load=outputs.load,
        tokens=sum(len(t) for t in (outputs.greedy, outputs.sampled) if t is not None),
        greedy_tokens=0 if outputs.greedy is None else len(outputs.greedy),
        sampled_tokens=0 if outputs.sampled is None else len(outputs.sampled),
        has_draft_direction=outputs.sampled is not None and outputs.scores.has_draft,
        tests=tests,
        beta=None if e is None else _interval(e.beta),
        d_beta=None if e is None else _interval(e.d_beta),
        d_top1=None if e is None else _interval(e.d_top1),
        bug_rate_upper95=max((c.excess_upper95 for c in f.counts), default=None),
        divergences=len(f.divergences),
        divergences_unexplained=sum(d.cause == "unexplained" for d in f.divergences),
        divergences_tied=sum(d.cause == "tie" for d in f.divergences),
        open_questions=tuple(open_),
    )


def _interval(e: sampling.Estimate) -> Interval:
    return Interval(value=e.value, low=e.low, high=e.high)


def _tilt_text(e: sampling.Estimate | Interval) -> str:
    """``est -0.1%, 90% CI -0.9..+0.7%``: in terms of temperature, hence the sign."""
    return f"est {-e.value:+.1%}, 90% CI {-e.high * 100:+.1f}..{-e.low:+.1%}"


def words_of(test: TestResult) -> str:
    """One test in a sentence, its corrected p-value last."""
    p = "by rule" if test.p == 0.0 else f"p = {test.p_holm:.1e}"
    return f"{test.name} at {test.load}: {test.words} ({p})"


def _headline(decision: str, reasons: Sequence[str], loads: Sequence[LoadParity], upper: float | None) -> str:
    if decision == "PASS":
        wide = max((x.d_beta for x in loads if x.d_beta is not None), key=lambda d: max(-d.low, d.high))
        return (
            f"equivalent within |dT/T| < {MAX_D_BETA:.0%} ({_tilt_text(wide)}), "
            f"bug rate < {upper:.1e}/token (95%)"
        )
    return reasons[0] if reasons else "not tested"
