"""The open-loop check of a sweep: the last rounds, of the recommended arm and its baseline at rates.

The rates are shares of what the baseline turned out to do, so they are known only when the closed loads are
measured. They are written to the journal before the first of these launches; a resume takes them from there.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from specbench.analysis.open_check import FINISHED, PLANNED, requests_per_s
from specbench.analysis.run import analyse
from specbench.config.open_check import check_cells
from specbench.config.plan import RoundPlan, further_round
from specbench.verdict.open_check import settled
from specbench.verdict.rule import judge
from specbench.workloads.mix import stretched

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specbench.analysis.run import RunAnalysis
    from specbench.runs.checks import OpenCheckRecord
    from specbench.runs.rundir import RunDir
    from specbench.sweep.prepare import Prepared
    from specbench.verdict.rule import Choice


@dataclass(slots=True)
class OpenLoopCheck:
    """Round after round, from the plan in the journal.

    ``prepared`` knows the requests at their rates once `begin` has returned true.
    """

    prepared: Prepared
    run: RunDir
    plan: dict[str, Any] = field(default_factory=dict)
    rounds: int = 0
    launches: int = 0

    def begin(self) -> bool:
        """Whether there are rounds to run; plans the check if no session has done it.

        Raises:
            RunFileError: a file of the run is damaged, or the plan could not be written.
        """
        record = self._record
        if record is None or self._event(FINISHED) is not None:
            return False
        found = self._event(PLANNED) or self._planned(record)
        if found is None:
            return False
        self.plan = found
        rates: dict[str, float] = found["rates"]
        mixes = {name: stretched(self.prepared.check_mixes[name], rate) for name, rate in rates.items()}
        self.prepared = dataclasses.replace(self.prepared, mixes={**self.prepared.mixes, **mixes})
        return True

    def next_round(self) -> RoundPlan | None:
        """The next pair of launches; null when nothing is left to learn.

        Raises:
            RunFileError: a file of the run is damaged.
        """
        record = self._record
        assert record is not None
        if self.rounds >= record.rounds:
            self._end(f"all {record.rounds} pairs were run")
            return None
        if self.rounds >= record.first_look and settled(analyse(self.run)):
            self._end(f"settled after {self.rounds} pairs")
            return None
        config, plan = self.prepared.loaded.config, self.prepared.plan
        arms = [a for a in plan.arms if a.id in (self.plan["arm"], self.plan["baseline"])]
        round_ = further_round(
            plan,
            int(self.plan["first_round"]) + self.rounds,
            int(self.plan["first_launch"]) + self.launches,
            arms,
            config.measure.order_seed,
            check_cells(config, self.plan["rates"]),
        )
        self.rounds += 1
        self.launches += len(round_.launches)
        return round_

    @property
    def _record(self) -> OpenCheckRecord | None:
        return self.run.manifest().open_check

    def _event(self, name: str) -> dict[str, Any] | None:
        return next((e for e in self.run.journal.read() if e.get("event") == name), None)

    def _planned(self, record: OpenCheckRecord) -> dict[str, Any] | None:
        analysis = analyse(self.run)
        verdict = judge(analysis, open_check=False)
        choice = verdict.choice
        if choice is None:
            self._end("no arm is recommended, so there is nothing to check")
            return None
        everywhere = verdict.arms[choice.arm].decision == "GO"
        load, rate = _reference(analysis, choice, everywhere)
        if rate is None:
            self._end("the baseline's requests/s are not known, so there are no rates")
            return None
        arm = next(a for a in analysis.manifest.arms if a.id == choice.arm)
        # Three digits: a rate that a person can read and send again.
        rates = {x.id: float(f"{x.share * rate:.3g}") for x in record.loads}
        content: Mapping[str, Any] = {
            "arm": arm.id,
            "baseline": arm.baseline,
            "load": load,
            "requests_per_s": rate,
            "rates": rates,
            "first_round": 1 + max(c.round for c in self.run.cells()),
            "first_launch": 1 + len(self.run.launches()),
        }
        self.run.journal.append(PLANNED, **content)
        return dict(content)

    def _end(self, reason: str) -> None:
        self.run.journal.append(FINISHED, reason=reason)


def _reference(analysis: RunAnalysis, choice: Choice, everywhere: bool) -> tuple[str, float | None]:
    """The highest closed load that the arm is recommended for, and the baseline's requests/s there.

    Args:
        everywhere: it is GO over the whole traffic, not only up to some load.
    """
    closed = [x for x in analysis.manifest.loads if x.kind == "closed"]
    named = [x for x in closed if everywhere or x.concurrency in choice.concurrencies] or closed
    load = max(named, key=lambda x: x.concurrency)
    baseline = analysis.at[choice.arm, load.id].arm.baseline
    return load.id, requests_per_s(analysis.at[baseline, load.id].valid)
