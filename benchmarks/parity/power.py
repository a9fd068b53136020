"""How often the parity battery finds each known bug, and how often it blames a correct engine.

Writes outputs with the simulated engine's own verifiers on a tabulated model, scores them with the clean
model as a baseline server would, and runs the battery of one arm at one load.

    python benchmarks/parity/power.py --replicates 200 --processes 2

200 replicates of tier gate (256 prompts x 256 tokens, greedy and sampled) take about ten minutes on 2 cores.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from specbench.engines.simulated.batch import Drafting, TableModel, Written, write
from specbench.parity.battery import FAIL_BELOW, Outputs, Tier, holm, judge_arm
from specbench.parity.data import DRAFT_FLOOR, UNKNOWN, Ints, Tokens
from specbench.runs.parity import ArmParity

PROMPTS = {"smoke": 64, "gate": 256}
MAX_TOKENS = 256
K = 4
TOP = 20
BATCH = 8
"""Replicates that are written together."""
GREEDY_NOISE_NAT = 0.05
"""Rounding noise of greedy runs: without any, greedy texts of all correct engines would be equal."""


@dataclass(frozen=True)
class Case:
    """One way of serving; ``correct`` ones must pass."""

    name: str
    verifier: str = "standard"
    drafting: Drafting = "sampled"
    correct: bool = False
    top_p: float = 1.0
    noise: float = 0.0
    greedy: bool = False
    """Whether the greedy outputs are its own; otherwise the verifier does nothing at temperature 0."""


CASES = (
    Case("baseline again", drafting="none", correct=True),
    Case("standard", correct=True, greedy=True),
    Case("standard, greedy draft (one-hot)", drafting="greedy", correct=True),
    Case("block verification", "block_verification", correct=True, greedy=True),
    Case("standard, noise 0.05 nat per logit", correct=True, noise=0.05),
    Case("standard, noise 0.1 nat per logit", correct=True, noise=0.1),
    Case("typical acceptance", "typical_acceptance", "greedy"),
    Case("argmax verify at T > 0", "argmax_at_temperature", "greedy"),
    Case("greedy draft judged as sampled", "greedy_draft_as_sampled"),
    Case("residual not subtracted", "residual_not_subtracted"),
    Case("lenient, p / (0.5 q)", "lenient_acceptance_half"),
    Case("lenient, p / (0.8 q)", "lenient_acceptance"),
    Case("bonus from shifted logits", "shifted_bonus", greedy=True),
    Case("bonus greedy", "greedy_bonus"),
    Case("bonus at T = 0.9", "cool_bonus"),
    Case("T off by 5%", "temperature_off_5"),
    Case("T off by 2%", "temperature_off_2"),
    Case("top_p 0.9 ignored", "top_p_ignored", top_p=0.9),
    Case("top_p 0.95 applied", "top_p_applied"),
    Case("stale KV, 5% of rejections", "stale_kv_5", greedy=True),
    Case("stale KV, 1% of rejections", "stale_kv_1", greedy=True),
    Case("random token, 1e-2", "random_token_1e-2", greedy=True),
    Case("random token, 1e-3", "random_token_1e-3", greedy=True),
    Case("position off by one", "position_off_by_one", greedy=True),
    Case("early end of text, 2e-3", "early_end", greedy=True),
)


class Scorer:
    """What a baseline server answers with ``prompt_logprobs=20``."""

    def __init__(self, model: TableModel) -> None:
        self.model = model
        self.log_p, log_q = (table.astype(np.float32) for table in model.log_probabilities())
        self.top = np.argsort(-self.log_p, axis=1, kind="stable")[:, :TOP].astype(np.int32)
        self.top_log_p = np.take_along_axis(self.log_p, self.top, axis=1)
        self.top_log_q = np.maximum(np.take_along_axis(log_q, self.top, axis=1), np.float32(DRAFT_FLOOR))
        self.draft_best = log_q.argmax(axis=1)

    def tokens(self, written: Written, prompts: Ints, *, with_draft: bool) -> Tokens:
        """Score outputs."""
        here = np.arange(written.tokens.shape[1]) < written.lengths[:, None]
        rows = self.model.rows_of(written.tokens, prompts)[here]
        ids = written.tokens[here]
        return Tokens(
            ids=ids,
            logprobs=self.log_p[rows, ids].astype(np.float64),
            top_ids=self.top[rows],
            top_logprobs=self.top_log_p[rows],
            sequence=np.repeat(np.arange(len(prompts)), written.lengths),
            outputs=len(prompts),
            positions=written.position[here],
            after_rejection=written.after_rejection[here].astype(np.int64),
            ranks=np.full(len(ids), UNKNOWN),
            draft_logprobs=self.top_log_q[rows] if with_draft else None,
            proposed=self.draft_best[rows] if with_draft else None,
        )


@dataclass
class Tally:
    """Decisions over replicates, and which tests made the failures."""

    decisions: Counter[str] = field(default_factory=Counter)
    no_draft: Counter[str] = field(default_factory=Counter)
    tests: Counter[str] = field(default_factory=Counter)
    beta: list[float] = field(default_factory=list)

    def add(self, found: ArmParity) -> None:
        """Count one replicate; ``no_draft`` as if the draft's direction could not be known."""
        self.decisions[found.decision] += 1
        rest = holm([t for t in found.loads[0].tests if "S5" not in t.name])
        self.no_draft["FAIL"] += any(t.p_holm < FAIL_BELOW for t in rest)
        for test in found.loads[0].tests:
            if test.p_holm < FAIL_BELOW:
                self.tests[test.name] += 1
        d_beta = found.loads[0].d_beta
        if d_beta is not None:
            self.beta.append(d_beta.value)

    def merge(self, other: Tally) -> None:
        """Add another tally."""
        self.decisions += other.decisions
        self.no_draft += other.no_draft
        self.tests += other.tests
        self.beta += other.beta


@dataclass(frozen=True)
class Job:
    """Some replicates of every case."""

    seed: int
    replicates: int
    tier: Tier
    cases: tuple[Case, ...]


def run(job: Job) -> dict[str, Tally]:
    """Write, score and judge."""
    study = _Study(job)
    return {case.name: study.case(case) for case in job.cases}


class _Study:
    def __init__(self, job: Job) -> None:
        self.job = job
        self.model = TableModel()
        self.scorer = Scorer(self.model)
        self.prompts = np.arange(PROMPTS[job.tier])
        self._baselines: dict[tuple[float, float], list[Outputs]] = {}
        self._greedy: dict[str, list[Tokens]] = {}

    def case(self, case: Case) -> Tally:
        tally = Tally()
        greedy = self.greedy(case.verifier if case.greedy else "standard")
        sampled = self.sampled(case)
        baselines = self.baselines(case.top_p, case.noise)
        for g, s, base in zip(greedy, sampled, baselines, strict=True):
            arm = Outputs("c1", g, s, 1.0, case.top_p)
            tally.add(judge_arm(case.name, self.job.tier, [arm], base))
        return tally

    def baselines(self, top_p: float, noise: float) -> list[Outputs]:
        """Two launches of the baseline, laid together."""
        key = (top_p, noise)
        if key not in self._baselines:
            case = Case("A and A'", drafting="none", top_p=top_p, noise=noise)
            self._baselines[key] = [
                Outputs("baseline", g, s, 1.0, top_p)
                for g, s in zip(self.greedy("baseline", rows=2), self.sampled(case, rows=2), strict=True)
            ]
        return self._baselines[key]

    def greedy(self, verifier: str, rows: int = 1) -> list[Tokens]:
        if verifier not in self._greedy:
            prompts = self._prompts(rows)
            written = write(
                self.model,
                prompts,
                MAX_TOKENS,
                np.random.default_rng([self.job.seed, _number(verifier), 0]),
                drafting="none" if verifier == "baseline" else "greedy",
                k=K,
                verifier="standard" if verifier == "baseline" else verifier,
                temperature=0.0,
                logit_noise=GREEDY_NOISE_NAT,
            )
            self._greedy[verifier] = list(self._split(written, prompts, with_draft=False))
        return self._greedy[verifier]

    def sampled(self, case: Case, rows: int = 1) -> list[Tokens]:
        prompts = self._prompts(rows)
        written = write(
            self.model,
            prompts,
            MAX_TOKENS,
            np.random.default_rng([self.job.seed, _number(case.name), 1]),
            drafting=case.drafting,
            k=K,
            verifier=case.verifier,
            top_p=case.top_p,
            logit_noise=case.noise,
        )
        return list(self._split(written, prompts, with_draft=True))

    def _prompts(self, rows: int) -> Ints:
        return np.tile(self.prompts, self.job.replicates * rows)

    def _split(self, written: Written, prompts: Ints, *, with_draft: bool) -> Iterator[Tokens]:
        size = len(prompts) // self.job.replicates
        for start in range(0, len(prompts), size):
            cut = slice(start, start + size)
            part = Written(
                written.tokens[cut], written.lengths[cut], written.position[cut], written.after_rejection[cut]
            )
            yield self.scorer.tokens(part, prompts[cut], with_draft=with_draft)


def _number(text: str) -> int:
    return int.from_bytes(text.encode()) % (2**63)


def study(
    replicates: int, processes: int, seed: int = 1, tier: Tier = "gate", cases: tuple[Case, ...] = CASES
) -> dict[str, Tally]:
    """Every case over all replicates."""
    jobs = [
        Job(seed * 1000 + i, min(BATCH, replicates - BATCH * i), tier, cases)
        for i in range((replicates + BATCH - 1) // BATCH)
    ]
    total = {case.name: Tally() for case in cases}
    with multiprocessing.Pool(processes) as pool:
        for part in pool.imap_unordered(run, jobs):
            for name, tally in part.items():
                total[name].merge(tally)
    return total


def table(found: dict[str, Tally], cases: tuple[Case, ...] = CASES) -> str:
    """Markdown."""
    lines = [
        "| arm | FAIL | FAIL without a draft direction | PASS | d beta | found by |",
        "|---|---|---|---|---|---|",
    ]
    for case in cases:
        t = found[case.name]
        n = sum(t.decisions.values())
        by = ", ".join(f"{name} {count / n:.2f}" for name, count in t.tests.most_common(4))
        name = f"{case.name} (correct)" if case.correct else case.name
        lines.append(
            f"| {name} | {t.decisions['FAIL'] / n:.3f} | {t.no_draft['FAIL'] / n:.3f} | "
            f"{t.decisions['PASS'] / n:.3f} | {np.mean(t.beta):+.3f} | {by} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--replicates", type=int, default=200)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tier", choices=sorted(PROMPTS), default="gate")
    parser.add_argument("--only", help="cases whose name contains this text")
    a = parser.parse_args()
    cases = tuple(c for c in CASES if a.only is None or a.only in c.name)
    began = time.perf_counter()
    found = study(a.replicates, a.processes, a.seed, a.tier, cases)
    print(table(found, cases))
    print(f"\n{a.replicates} replicates, tier {a.tier}, {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
