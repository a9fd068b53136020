"""All tests of one speculative arm on texts, where no server tells token ids or scores: FAIL or INCONCLUSIVE.

A PASS needs scores: from texts alone nothing bounds what was not seen. What could have been is told instead.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np

from specbench.parity import text_greedy, text_sampled
from specbench.parity.battery import ESCALATE_BELOW, EXACT_LAW, FAIL_BELOW, Tier, holm, words_of
from specbench.parity.data import Role
from specbench.parity.greedy import HARD_NAT
from specbench.parity.text_data import TextOutput
from specbench.parity.text_greedy import ByPrompt
from specbench.runs.parity import ArmParity, LoadParity, TestResult

TOLD: Final = 0.9
"""Share of prompts whose outputs must have tokens for tokens to be compared, and the rest left out."""

AGAIN: Final = "repeat the command with --run RUN (a sweep: --resume)"


@dataclass(slots=True)
class _Findings:
    """What one load gave; outputs as served are a load of their own."""

    load: str
    tests: list[TestResult] = field(default_factory=list)
    greedy_tokens: int = 0
    sampled_tokens: int = 0
    explained: text_greedy.Explained | None = None
    earliness: text_greedy.Earliness | None = None
    open: list[str] = field(default_factory=list)

    def add(self, name: str, p: float, words: str) -> None:
        self.tests.append(TestResult(load=self.load, name=name, p=p, p_holm=p, words=words))


def judge_texts(
    arm: str,
    tier: Tier,
    own: Sequence[TextOutput],
    baseline: Sequence[TextOutput],
    why: str,
    lossy: Sequence[str] = (),
) -> ArmParity:
    """Test an arm's texts at all its loads against the baseline's own, of both launches (A and A').

    Args:
        why: what the server answered when it was asked for ids or scores.
        lossy: settings of the arm that change outputs by design (`lossy_settings`).
    """
    found: list[_Findings] = []
    for load in dict.fromkeys(x.load for x in sorted(own, key=lambda x: x.concurrency)):
        found += _at_load(load, [x for x in own if x.load == load], baseline)
    tests = holm([t for f in found for t in f.tests])
    at = tuple(_load_result(f, tuple(t for t in tests if t.load == f.load)) for f in found)
    failed = [t for t in tests if t.p_holm < FAIL_BELOW]
    doubtful = [t for t in tests if FAIL_BELOW <= t.p_holm < ESCALATE_BELOW]
    decision: Literal["FAIL", "INCONCLUSIVE"] = "FAIL" if lossy or failed else "INCONCLUSIVE"
    reasons = [f"lossy by configuration: {text}" for text in lossy] + [words_of(t) for t in failed]
    if decision == "INCONCLUSIVE":
        reasons = [f"texts only: {words_of(t)}: doubtful, test again with new prompts" for t in doubtful]
        open_ = [f"{f.load}: {text}" for f in found for text in f.open]
        if not found:
            open_.append(f"texts only, and none of {'this arm' if baseline else 'the baseline'}")
        elif not doubtful and not open_:
            reasons.append(_nothing_found(found, len(tests)))
        reasons += open_
    reasons.append(f"texts only: the baseline's server tells no token ids or no scores ({why})")
    return ArmParity(
        arm=arm,
        tier=tier,
        decision=decision,
        headline=reasons[0],
        reasons=tuple(reasons),
        lossy=tuple(lossy),
        escalate=bool(doubtful) and decision == "INCONCLUSIVE",
        tokens=sum(x.tokens for x in at),
        bug_rate_upper95=None,
        loads=at,
    )


def _at_load(load: str, own: Sequence[TextOutput], baseline: Sequence[TextOutput]) -> list[_Findings]:
    """The load itself, and outputs sampled by a second law as a load of their own."""
    first = _Findings(load)
    greedy = _by_prompt(own, (0.0, 1.0), baseline)
    if not text_greedy.spelt_alike(*greedy[:2]):
        first.open.append("its server spells tokens in another way than the baseline's: words are compared")
        own, baseline = ([dataclasses.replace(x, tokens=None, top=None) for x in y] for y in (own, baseline))
        greedy = _by_prompt(own, (0.0, 1.0), baseline)
    _greedy(first, *greedy)
    laws = sorted(dict.fromkeys(x.law for x in own if not x.greedy), key=lambda law: law != EXACT_LAW)
    found = [first]
    for i, law in enumerate(laws):
        at = first if i == 0 else _Findings(f"{load} as served")
        _sampled(at, *_by_prompt(own, law, baseline), greedy[1])
        if i:
            found.append(at)
    if not laws:
        first.open.append("no sampled output was collected")
    return found


def _by_prompt(
    own: Sequence[TextOutput], law: tuple[float, float], baseline: Sequence[TextOutput]
) -> tuple[ByPrompt, ByPrompt, ByPrompt]:
    """S, A and A' by prompt, of one law."""

    def chosen(rows: Sequence[TextOutput], role: Role) -> ByPrompt:
        return {x.prompt_id: x for x in rows if x.role is role and x.law == law}

    return chosen(own, Role.S), chosen(baseline, Role.A), chosen(baseline, Role.A2)


def _greedy(f: _Findings, arm: ByPrompt, base: ByPrompt, again: ByPrompt) -> None:
    prompts, tokens = _common(arm, base, again)
    if not prompts:
        f.open.append(_missing("greedy", arm, base, again))
        return
    groups = [[x[p] for p in prompts] for x in (arm, base, again)]
    told = tokens and any(x.top and any(x.top) for x in groups[1])
    mine, theirs = (text_greedy.pairs(x, base, prompts, tokens=told) for x in (arm, again))
    if told:
        e = f.explained = text_greedy.explain(mine, theirs, groups[1])
        f.add(
            "greedy, first difference",
            e.p,
            f"of {e.prompts} texts {sum(e.arm.values())} part from the baseline's: {e.arm['tie']} at a tie, "
            f"{e.arm['rounding']} within rounding ({e.soft_nat:.2f} nat), {e.arm['unexplained']} unexplained "
            f"({e.hard} beyond all of its alternatives or by more than {HARD_NAT} nat), "
            f"{e.arm['untold']} where it tells no alternatives; of the baseline's own again "
            f"{sum(e.again.values())}, {e.again['unexplained']} unexplained",
        )
    else:
        x = f.earliness = text_greedy.earliness(mine, theirs)
        f.add(
            "greedy, first difference of texts",
            x.p,
            f"{x.differ} of {x.prompts} texts part from the baseline's, {x.per_word:.1%} of the words that were "
            f"compared (of its own again {x.differ_again})",
        )
        if x.p_earlier < FAIL_BELOW <= x.p:
            f.open.append(
                f"greedy texts part from the baseline's ({x.differ} of {x.prompts}) earlier than its own do "
                f"({x.differ_again}): rounding in other kernels may do that, or a bug; without logprobs nobody "
                "can tell"
            )
    f.greedy_tokens = _ends(f, "greedy", groups[0], [*groups[1], *groups[2]], tokens=tokens)


def _sampled(f: _Findings, arm: ByPrompt, base: ByPrompt, again: ByPrompt, greedy: ByPrompt) -> None:
    """``greedy``: the baseline's own greedy texts (A)."""
    prompts, tokens = _common(arm, base, again)
    if not prompts:
        f.open.append(_missing("sampled", arm, base, again))
        return
    groups = [[x[p] for p in prompts] for x in (arm, base, again)]
    what = "tokens" if tokens else "trigrams of characters"
    f.add(
        "sampled, frequencies",
        text_sampled.p_frequencies(list(zip(*groups, strict=True)), tokens=tokens),
        f"{what} come at other rates than in the baseline's texts to the same prompts",
    )
    common = [p for p in prompts if p in greedy]
    words = not (tokens and all(greedy[p].tokens is not None for p in common))
    follow = text_greedy.by_words if words else text_greedy.by_tokens
    places = [[text_greedy.leaves_at(follow(x[p], greedy[p])) for p in common] for x in (arm, base, again)]
    own, theirs = np.array(places[0]), np.array([*places[1], *places[2]])
    if common:
        f.add(
            "sampled, likeness to greedy",
            text_sampled.p_sizes(own, theirs),
            f"outputs leave the baseline's greedy text after {own.mean():.1f} {'words' if words else 'tokens'}, its "
            f"own after {theirs.mean():.1f}",
        )
    f.sampled_tokens = _ends(f, "sampled", groups[0], [*groups[1], *groups[2]], tokens=tokens)


def _common(arm: ByPrompt, base: ByPrompt, again: ByPrompt) -> tuple[list[str], bool]:
    """Prompts that all three answered, and whether to compare tokens: of the prompts of which all have them."""
    prompts = [p for p in arm if p in base and p in again]
    told = [p for p in prompts if all(x[p].tokens is not None for x in (arm, base, again))]
    return (told, True) if told and len(told) >= TOLD * len(prompts) else (prompts, False)


def _missing(kind: str, arm: ByPrompt, base: ByPrompt, again: ByPrompt) -> str:
    for of, rows in (("this arm", arm), ("the baseline", base), ("the baseline's second launch", again)):
        if not rows:
            return f"no {kind} output of {of} was collected; {AGAIN}"
    return f"no {kind} output of the same prompt by the arm and both launches of the baseline"


def _ends(
    f: _Findings, kind: str, own: Sequence[TextOutput], base: Sequence[TextOutput], *, tokens: bool
) -> int:
    """Lengths and loops; returns the arm's tokens, 0 where they are not known."""
    mine, theirs = (text_sampled.sizes(x, tokens=tokens) for x in (own, base))
    looped = text_sampled.count_loops(own, base)
    unit = "tokens" if tokens else "characters"
    f.add(
        f"{kind}, lengths",
        text_sampled.p_sizes(mine, theirs),
        f"outputs have {mine.mean():.1f} {unit}, the baseline's {theirs.mean():.1f}",
    )
    f.add(
        f"{kind}, loops",
        looped.p_more,
        f"{looped.arm} of {looped.arm_of} outputs end in a loop; of the baseline {looped.baseline} of "
        f"{looped.baseline_of}",
    )
    return int(mine.sum()) if tokens else 0


def _nothing_found(found: Sequence[_Findings], tests: int) -> str:
    """What the texts leave open, in numbers where there are any."""
    explained = [f.explained for f in found if f.explained is not None]
    blind = [f.earliness for f in found if f.earliness is not None]
    prompts = min([x.prompts for x in explained] + [x.prompts for x in blind])
    if blind:
        limit = f"a bug that touches fewer than about {text_greedy.TIES_PER_WORD:.0%} of the words of greedy texts"
    else:
        fewest = [
            text_greedy.fewest_seen(x.again["unexplained"], x.prompts, FAIL_BELOW / tests) for x in explained
        ]
        known = [k for k in fewest if k is not None]
        if len(known) < len(fewest):
            limit = "a bug in so few greedy texts"
        else:
            share = max(k / x.prompts for k, x in zip(known, explained, strict=True))
            limit = f"a bug that changes fewer than about {share:.0%} of greedy texts"
    return (
        f"texts only: nothing found in {prompts} prompts; {limit}, or sampled ones only a little "
        "(docs/parity.md, Without scores), would not be seen"
    )


def _load_result(f: _Findings, tests: tuple[TestResult, ...]) -> LoadParity:
    e, x = f.explained, f.earliness
    return LoadParity(
        load=f.load,
        tokens=f.greedy_tokens + f.sampled_tokens,
        greedy_tokens=f.greedy_tokens,
        sampled_tokens=f.sampled_tokens,
        has_draft_direction=False,
        tests=tests,
        beta=None,
        d_beta=None,
        d_top1=None,
        bug_rate_upper95=None,
        divergences=sum(e.arm.values()) if e is not None else x.differ if x is not None else 0,
        divergences_unexplained=0 if e is None else e.arm["unexplained"],
        divergences_tied=0 if e is None else e.arm["tie"],
        open_questions=tuple(f.open),
    )
