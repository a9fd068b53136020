"""How often texts alone find each known bug, and how often they blame a correct engine.

Writes outputs with the simulated engine's own verifiers on a tabulated model, as `power.py` does, and gives them
to the tests of texts: tokens stand for themselves, alternatives are the clean model's with a little noise. Judged
twice: with logprobs, and without them (words, trigrams of characters).

    python benchmarks/parity/texts.py --replicates 40
    python benchmarks/parity/texts.py --replicates 400 --tier smoke --tokens 32 --correct
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from benchmarks.parity.power import GREEDY_NOISE_NAT, MAX_TOKENS, PROMPTS, Case, K
from specbench.engines.simulated.batch import Drafting, TableModel, write
from specbench.engines.simulated.tokenizer import TOKEN_TEXT
from specbench.parity.battery import FAIL_BELOW
from specbench.parity.data import Floats, Ints, Role
from specbench.parity.text_data import Alternatives, TextOutput
from specbench.parity.texts import judge_texts
from specbench.runs.parity import ArmParity

TOP = 5
ALTERNATIVE_NOISE_NAT = 0.05
"""Rounding noise of the logprobs that come with an output."""

CASES = (
    Case("baseline again", drafting="none", correct=True),
    Case("standard", correct=True, greedy=True),
    Case("standard, greedy draft (one-hot)", drafting="greedy", correct=True),
    Case("block verification", "block_verification", correct=True, greedy=True),
    Case("argmax verify at T > 0", "argmax_at_temperature", "greedy"),
    Case("typical acceptance", "typical_acceptance", "greedy"),
    Case("bonus from shifted logits", "shifted_bonus", greedy=True),
    Case("stale KV, 5% of rejections", "stale_kv_5", greedy=True),
    Case("random token, 1e-2", "random_token_1e-2", greedy=True),
    Case("random token, 1e-3", "random_token_1e-3", greedy=True),
    Case("position off by one", "position_off_by_one", greedy=True),
    Case("T off by 5%", "temperature_off_5"),
    Case("early end of text, 2e-3", "early_end", greedy=True),
)


@dataclass
class Tally:
    """Decisions over replicates, and which tests made the failures."""

    n: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    doubtful: Counter[str] = field(default_factory=Counter)
    tests: Counter[str] = field(default_factory=Counter)
    blind: Counter[str] = field(default_factory=Counter)

    def add(self, found: ArmParity, blind: ArmParity) -> None:
        """Count one replicate, judged with logprobs and without."""
        self.n += 1
        for name, result, tests in (("logprobs", found, self.tests), ("none", blind, self.blind)):
            self.failed[name] += result.decision == "FAIL"
            self.doubtful[name] += result.escalate
            tests.update({t.name for x in result.loads for t in x.tests if t.p_holm < FAIL_BELOW})


class Study:
    """Replicates of one tier; the same baseline's texts for all cases of a replicate."""

    def __init__(self, prompts: int, seed: int, tokens: int = MAX_TOKENS) -> None:
        self.model = TableModel()
        self.log_p = self.model.log_probabilities()[0].astype(np.float32)
        self.prompts = np.arange(prompts)
        self.seed = seed
        self.tokens = tokens

    def replicate(self, number: int, cases: tuple[Case, ...], tallies: dict[str, Tally]) -> None:
        """Write, judge and count."""
        rng = np.random.default_rng([self.seed, number])
        plain = Case("baseline", drafting="none")
        baseline = [
            x
            for role in (Role.A, Role.A2)
            for x in (*self.greedy(rng, plain, role), *self.sampled(rng, plain, role))
        ]
        silent = [_silent(x) for x in baseline]
        for case in cases:
            standard = Case("", drafting="none" if case.drafting == "none" else "greedy")
            own = [
                *self.greedy(rng, case if case.greedy else standard, Role.S),
                *self.sampled(rng, case, Role.S),
            ]
            tallies[case.name].add(
                judge_texts(case.name, "gate", own, baseline, "a study"),
                judge_texts(case.name, "gate", [_silent(x) for x in own], silent, "a study"),
            )

    def greedy(self, rng: np.random.Generator, case: Case, role: Role) -> list[TextOutput]:
        """Greedy outputs with alternatives."""
        drafting: Drafting = "none" if case.drafting == "none" else "greedy"
        return self._written(rng, case.verifier, drafting, 0.0, role)

    def sampled(self, rng: np.random.Generator, case: Case, role: Role) -> list[TextOutput]:
        """Outputs at temperature 1; nothing looks at their alternatives."""
        return self._written(rng, case.verifier, case.drafting, 1.0, role)

    def _written(
        self, rng: np.random.Generator, verifier: str, drafting: Drafting, temperature: float, role: Role
    ) -> list[TextOutput]:
        greedy = temperature == 0.0
        written = write(
            self.model,
            self.prompts,
            self.tokens,
            rng,
            drafting=drafting,
            k=K,
            verifier=verifier,
            temperature=temperature,
            logit_noise=GREEDY_NOISE_NAT if greedy else 0.0,
        )
        rows = self.model.rows_of(written.tokens, self.prompts)
        outputs = []
        for i, n in enumerate(written.lengths.tolist()):
            tokens = tuple(TOKEN_TEXT[t] for t in written.tokens[i, :n].tolist())
            wanted = greedy and role is Role.A
            top = self._top(rng, rows[i, :n]) if wanted else ((),) * n
            outputs.append(
                TextOutput(
                    role=role,
                    arm="S" if role is Role.S else "baseline",
                    load="c1",
                    concurrency=1,
                    temperature=temperature,
                    top_p=1.0,
                    prompt_id=f"p{i}",
                    text="".join(tokens).removesuffix(TOKEN_TEXT[0]),
                    finish_reason="stop" if tokens[-1] == TOKEN_TEXT[0] else "length",
                    tokens=tokens,
                    top=top,
                )
            )
        return outputs

    def _top(self, rng: np.random.Generator, rows: Ints) -> tuple[Alternatives, ...]:
        noise = rng.standard_normal((len(rows), self.log_p.shape[1])) * ALTERNATIVE_NOISE_NAT
        told: Floats = self.log_p[rows] + noise
        best = np.argsort(-told, axis=1)[:, :TOP]
        values = np.take_along_axis(told, best, axis=1)
        return tuple(
            tuple((TOKEN_TEXT[t], p) for t, p in zip(ids, ps, strict=True))
            for ids, ps in zip(best.tolist(), values.tolist(), strict=True)
        )


def _silent(x: TextOutput) -> TextOutput:
    """The same from a server without logprobs."""
    return TextOutput(
        role=x.role,
        arm=x.arm,
        load=x.load,
        concurrency=x.concurrency,
        temperature=x.temperature,
        top_p=x.top_p,
        prompt_id=x.prompt_id,
        text=x.text,
        finish_reason=x.finish_reason,
    )


def table(found: dict[str, Tally], cases: tuple[Case, ...] = CASES) -> str:
    """Markdown."""
    lines = [
        "| arm | FAIL | doubtful | found by | no logprobs: FAIL | doubtful | found by |",
        "|---|---|---|---|---|---|---|",
    ]
    for case in cases:
        t = found[case.name]
        cells = []
        for name, tests in (("logprobs", t.tests), ("none", t.blind)):
            by = ", ".join(f"{test} {count / t.n:.2f}" for test, count in tests.most_common(4))
            cells += [f"{t.failed[name] / t.n:.3f}", f"{t.doubtful[name] / t.n:.3f}", by]
        name = f"correct: {case.name}" if case.correct else case.name
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--replicates", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tier", choices=sorted(PROMPTS), default="gate")
    parser.add_argument("--tokens", type=int, default=MAX_TOKENS)
    parser.add_argument("--only", help="cases whose name contains this text")
    parser.add_argument("--correct", action="store_true", help="correct cases only")
    a = parser.parse_args()
    cases = tuple(c for c in CASES if (a.only is None or a.only in c.name) and (c.correct or not a.correct))
    began = time.perf_counter()
    tallies = {case.name: Tally() for case in cases}
    study = Study(PROMPTS[a.tier], a.seed, a.tokens)
    for number in range(a.replicates):
        study.replicate(number, cases, tallies)
    print(table(tallies, cases))
    print(f"\n{a.replicates} replicates, tier {a.tier}, {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
