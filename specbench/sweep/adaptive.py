"""The rounds of an adaptive sweep: ask the campaign what comes next, plan it, and write the plan down."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from specbench.analysis.run import Stage, analyse
from specbench.config.plan import RoundPlan, further_round
from specbench.verdict.adaptive import campaign_of, seen
from specbench.verdict.campaign import Confirm, Explore, Stop
from specbench.verdict.rule import barred

if TYPE_CHECKING:
    from specbench.runs.rundir import RunDir
    from specbench.sweep.prepare import Prepared

PLANNED: Final = "round_planned"
"""Journal event of a round, written before its first launch. A resume repeats the rounds that it finds."""


@dataclass(slots=True)
class Adaptive:
    """Round after round. ``stage`` is that of the round given last, ``stopped`` why there is no other."""

    prepared: Prepared
    run: RunDir
    stage: Stage | None = None
    stopped: str | None = None
    launches: int = 0
    stages: dict[int, Stage] = field(default_factory=dict)
    recorded: deque[dict[str, Any]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.recorded.extend(e for e in self.run.journal.read() if e.get("event") == PLANNED)

    def next_round(self) -> RoundPlan | None:
        """What to run now, from the data of the finished rounds; null at the end.

        Raises:
            RunFileError: a file of the run is damaged.
        """
        if self.recorded:
            event = self.recorded.popleft()
            return self._plan(int(event["round"]), event["stage"], tuple(event["arms"]))
        analysis = analyse(self.run)
        # The rule of the manifest, which was written before the first launch.
        step = campaign_of(analysis.manifest).next(seen(analysis, barred(analysis), self.stages))
        if isinstance(step, Stop):
            self.stopped = step.reason
            return None
        arms = step.arms if isinstance(step, Explore) else (step.arm,)
        stage: Stage = "confirm" if isinstance(step, Confirm) else "explore"
        self.run.journal.append(PLANNED, round=step.round, stage=stage, arms=list(arms))
        return self._plan(step.round, stage, arms)

    @property
    def launches_ahead(self) -> int:
        """Launches that are certain to follow the round given last, unless an arm drops out."""
        rule, plan = self.prepared.plan.adaptive, self.prepared.plan
        assert rule is not None
        explored = sum(1 for s in self.stages.values() if s == "explore")
        confirmed = len(self.stages) - explored
        explore = 0 if confirmed else max(0, rule.explore_rounds - explored)
        baselines = sum(not a.speculates for a in plan.arms)
        confirm = max(0, rule.least_confirming - confirmed)
        return explore * (baselines + len(rule.explored)) + (baselines + 1) * confirm

    def _plan(self, number: int, stage: Stage, arms: tuple[str, ...]) -> RoundPlan:
        plan = self.prepared.plan
        seed = self.prepared.loaded.config.measure.order_seed
        engines = {a.engine for a in plan.arms if a.id in arms}
        used = [a for a in plan.arms if a.id in arms or (not a.speculates and a.engine in engines)]
        round_ = further_round(plan, number, self.launches + 1, used, seed)
        self.stage = self.stages[number] = stage
        self.launches += len(round_.launches)
        return round_
